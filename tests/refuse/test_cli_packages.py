"""Bad packages and bad inputs on the command line, and a disk that is full: the exact words."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.artifact.reader import open_package
from unistack_aot.artifact.writer import write_package
from unistack_aot.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
AGAIN = "copy the package again, or compile the model again"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with m.onnx, m.pkg, its tool cache, and other.onnx."""
    folder = tmp_path_factory.mktemp("packages")
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "fc")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "m.onnx")
    graph.input[0].name = graph.node[0].input[0] = "z"
    other = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(other, folder / "other.onnx")
    words = [
        "-o",
        str(folder / "m.pkg"),
        "--target",
        "cpu:x86-64-v3",
        "--dim",
        "batch=1..8",
        "--quiet",
    ]
    assert main([str(folder / "m.onnx"), *words]) == 0
    return folder


def refusal(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says that must be refused; paths inside the folder are written DIR."""
    assert main([word.replace("DIR", str(folder)) for word in words]) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return said.err.replace(str(folder), "DIR").removesuffix("\n")


def damaged(folder: Path, data: bytes) -> str:
    (folder / "bad.pkg").write_bytes(data)
    return "DIR/bad.pkg"


def test_no_package(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(folder, capsys, "run", "DIR/no.pkg") == (
        "error: the package cannot be opened: No such file or directory\n"
        "  at: DIR/no.pkg\n  do: check the path"
    )


def test_cut_short(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (folder / "m.pkg").read_bytes()
    said = refusal(folder, capsys, "run", damaged(folder, whole[: len(whole) // 2]))
    assert said == (
        "error: the file is cut short or not a package (File is not a zip file)\n"
        f"  at: DIR/bad.pkg\n  do: {AGAIN}"
    )


def test_one_byte_of_the_code_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = bytearray((folder / "m.pkg").read_bytes())
    place = whole.find(b"\x7fELF")
    whole[place + 5000] ^= 1
    said = refusal(folder, capsys, "run", damaged(folder, bytes(whole)))
    assert said.startswith("error: member 'cpu/x86-64-v3.so' was changed (SHA-256 differs)\n")
    assert said.endswith(f"\n  do: {AGAIN}")


def test_newer_version(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = open_package(folder / "m.pkg")
    contents = {m.name: bytes(package.data(m.name)) for m in package.manifest.members}
    newer = replace(package.manifest, version=9)
    write_package(folder / "bad.pkg", newer, contents)
    assert refusal(folder, capsys, "show", "DIR/bad.pkg") == (
        "error: the package has format version 9, this runtime reads up to 1\n"
        "  do: install a newer unistack_aot, or compile the model with this version"
    )


def array(folder: Path, name: str, value: np.ndarray) -> str:
    np.save(folder / name, value)
    return f"DIR/{name}"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("q", np.zeros((2, 4), np.float32), "input 'x' is missing; there is no input 'q'"),
        ("x", np.zeros((2, 5), np.float32), "axis 1 of input 'x' has size 5, the model takes 4"),
        ("x", np.zeros((2, 4)), "input 'x' is float64, the model takes float32"),
        ("x", np.zeros(4, np.float32), "input 'x' has shape [4], the model takes 2 dimensions"),
        (
            "x",
            np.zeros((9, 4), np.float32),
            "dimension 'batch' is 9 in axis 0 of input 'x', the package was compiled for 1..8",
        ),
    ],
)
def test_wrong_inputs(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, value: np.ndarray, words: str
) -> None:
    file = array(folder, "in.npy", value)
    for verb in (["run", "DIR/m.pkg"], ["check", "DIR/m.onnx", "DIR/m.pkg"]):
        said = refusal(folder, capsys, *verb, "--input", f"{name}={file}")
        assert said.split("\n")[0] == f"error: {words}", verb


def test_files_that_hold_no_arrays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "text.npy").write_text("1 2 3")
    said = refusal(folder, capsys, "run", "DIR/m.pkg", "--input", "x=DIR/text.npy")
    assert said.startswith("error: DIR/text.npy cannot be read as numpy data: ")
    assert said.endswith("\n  do: write it with numpy.save or numpy.savez, without Python objects")
    np.save(folder / "objects.npy", np.array([{}], dtype=object))
    said = refusal(folder, capsys, "run", "DIR/m.pkg", "--input", "x=DIR/objects.npy")
    assert said.startswith("error: DIR/objects.npy cannot be read as numpy data: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "DIR/other.onnx", "DIR/m.pkg"], "the package was compiled from another model"),
        (["check", "DIR/m.onnx", "DIR/m.pkg", "--dim", "batch=9"], "dimension 'batch' cannot be 9"),
        (["check", "DIR/m.onnx", "DIR/m.pkg", "--device", "tpu"], "there is no device 'tpu'"),
        (["run", "DIR/m.pkg", "--device", "cuda"], "the package has no cuda variant"),
        (["run", "DIR/m.pkg", "--threads", "0"], "threads=0 is not positive"),
        (["run", "DIR/m.pkg", "--threads", "two"], "argument --threads: invalid int value: 'two'"),
        (["run", "DIR/m.pkg", "--dim", "seq=3"], "the package has no dimension 'seq'"),
        (["run", "DIR/m.pkg", "--repeat", "0"], "--repeat 0"),
        (["run"], "the following arguments are required: package"),
        (["explain", "DIR/m.pkg", "--kernel", "7"], "there is no kernel 7"),
        (["explain", "DIR/m.pkg", "--target", "cuda"], "no variant for 'cuda'"),
        (["explain", "DIR/m.onnx", "--rule", "magic"], "no rule is called 'magic'"),
        (
            ["show", "DIR/m.pkg", "--html", "DIR/p.html", "--dump", "DIR/no"],
            "DIR/no holds no stages",
        ),
        (["show", "DIR/m.onnx"], "the file is cut short or not a package"),
    ],
)
def test_mistakes(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert refusal(folder, capsys, *words).startswith(f"error: {said}")


def test_a_package_without_recorded_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = open_package(folder / "m.pkg")
    contents = {m.name: bytes(package.data(m.name)) for m in package.manifest.members}
    write_package(folder / "bare.pkg", replace(package.manifest, golden=()), contents)
    assert refusal(folder, capsys, "run", "DIR/bare.pkg", "--selftest") == (
        "error: the package carries no recorded run\n  at: DIR/bare.pkg\n"
        "  do: compile without --no-golden, or use: unistack-aot check MODEL PACKAGE"
    )


def test_a_full_disk(folder: Path) -> None:
    """No file may be as large as the package; what the compilers make is in the cache already."""
    limit = (folder / "m.pkg").stat().st_size - 500
    before = sorted(path.name for path in folder.iterdir())
    words = [
        "-o",
        str(folder / "full.pkg"),
        "--target",
        "cpu:x86-64-v3",
        "--dim",
        "batch=1..8",
        "--no-check",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "unistack_aot", str(folder / "m.onnx"), *words],
        cwd=ROOT,
        env=dict(os.environ),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.replace(str(folder), "DIR") == (
        "error: the package could not be written: File too large\n  at: DIR/full.pkg\n"
        "  do: free space or choose another place; nothing was written\nnothing was written\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == before
