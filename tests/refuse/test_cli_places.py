"""Tools that are missing or fail, and places that cannot be written: words, and nothing left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot import load
from unistack_aot.cli.main import main
from unistack_aot.cli.progress import Lines
from unistack_aot.targets.toolchain import probe_tool

ROOT = Path(__file__).resolve().parents[2]
FAILING = """\
#!/bin/sh
case "$*" in *--version*|*" -E "*) echo "broken 1.0"; exit 0;; esac
echo "kernels_0.cpp:3:1: error: the disk of the compiler is full of bees" >&2
exit 1
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "fc")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [weight],
    )
    file = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file
    )
    return file


Refused = Callable[..., str]


@pytest.fixture
def refused(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Refused]:
    """Compile with other variables: what it says; exit code 2, no traceback, no file left."""

    def compile_it(*words: str, **changes: str) -> str:
        for name, value in changes.items():
            monkeypatch.setenv(name, value)
        probe_tool.cache_clear()  # tools are looked for once per process
        before = sorted(path.name for path in model.parent.iterdir())
        assert main([str(model), *words]) == 2
        assert sorted(path.name for path in model.parent.iterdir()) == before
        said = capsys.readouterr()
        assert said.out == "" and "Traceback" not in said.err
        return said.err.replace(str(model.parent), "DIR")

    yield compile_it
    probe_tool.cache_clear()


@pytest.fixture
def no_ziglang(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where pip's compiler is not installed."""
    monkeypatch.setattr("unistack_aot.targets.cpu.build.find_spec", lambda name: None)


@pytest.mark.usefixtures("no_ziglang")
def test_no_host_compiler(refused: Refused) -> None:
    said = refused("--target", "cpu:x86-64-v3", PATH="/nonexistent")
    assert said.startswith("error: no C++ compiler for cpu:x86-64-v3\n")
    assert said.endswith(
        "\n  do: install g++ or clang, or: pip install 'unistack-aot[cpu]'\nnothing was written\n"
    )


def test_named_compiler_does_not_run(refused: Refused) -> None:
    changes = {"PATH": "/nonexistent", "UA_CXX": "no-such-compiler"}
    said = refused("--target", "cpu:x86-64-v3", **changes)
    assert "at: no-such-compiler" in said


def test_no_device_compiler(refused: Refused) -> None:
    changes = {"PATH": "/nonexistent", "UA_NVCC": "no-such-nvcc"}
    said = refused("--target", "cuda:sm_90", **changes)
    assert said == (
        "error: no CUDA compiler (nvcc) was found\n  at: no-such-nvcc\n"
        "  do: pip install 'unistack-aot[cuda]', or set UA_NVCC to the path of nvcc\n"
        "nothing was written\n"
    )


@pytest.mark.usefixtures("no_ziglang")
def test_no_target_at_all(refused: Refused) -> None:
    changes = {"PATH": "/nonexistent", "UA_NVCC": "no-such-nvcc"}
    assert refused(**changes).startswith("error: no C++ compiler for cpu:")


def test_compiler_fails(refused: Refused, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tools")
    broken = folder / "broken-cxx"
    broken.write_text(FAILING)
    broken.chmod(0o755)
    changes = {"UA_CXX": str(broken), "UA_CACHE": str(folder / "cache")}
    said = refused("--target", "cpu:x86-64-v3", **changes)
    assert said.replace(str(folder), "TOOLS") == (
        "error: TOOLS/broken-cxx failed: "
        "kernels_0.cpp:3:1: error: the disk of the compiler is full of bees\n"
        "  at: entry.cpp\n"
        "  do: run again with --dump DIR to see the generated source\n"
        "nothing was written\n"
    )


def test_no_folder_for_the_package(model: Path, refused: Refused) -> None:
    said = refused("-o", str(model.parent / "gone" / "m.pkg"), "--target", "cpu:x86-64-v3")
    assert said == (
        "error: the folder DIR/gone does not exist\n  at: DIR/gone/m.pkg\n"
        "  do: create it first; nothing was compiled\nnothing was written\n"
    )


def test_a_folder_instead_of_a_file(model: Path, refused: Refused) -> None:
    assert refused("-o", str(model.parent), "--target", "cpu:x86-64-v3") == (
        "error: DIR is a folder\n  do: give the name of the package file to write\n"
        "nothing was written\n"
    )


def test_what_is_no_package_is_not_replaced(model: Path, refused: Refused) -> None:
    """The model by mistake, somebody's notes, a pipe, a device: all stay as they are."""
    kept, notes, pipe = model.read_bytes(), model.parent / "notes.txt", model.parent / "pipe"
    notes.write_text("to keep")
    os.mkfifo(pipe)
    for place in (model, notes, pipe, Path(os.devnull)):
        said = refused("-o", str(place), "--target", "cpu:x86-64-v3")
        assert "is there, and is no package\n  do: choose another name" in said
    assert model.read_bytes() == kept and notes.read_text() == "to keep"
    assert pipe.is_fifo() and Path(os.devnull).is_char_device()


def test_packages_and_empty_files_are_replaced(model: Path) -> None:
    """Also under a name as long as names can be."""
    output = model.parent / ("p" * 251 + ".pkg")
    output.touch()
    for _ in range(2):
        words = [
            str(model),
            "-o",
            str(output),
            "--target",
            "cpu:x86-64-v3",
            "--no-check",
            "--quiet",
        ]
        assert main(words) == 0
        assert load(output, "cpu").inputs[0].name == "x"


def test_a_cache_that_is_no_folder(
    refused: Refused, tmp_path_factory: pytest.TempPathFactory
) -> None:
    blocked = tmp_path_factory.mktemp("cache") / "file"
    blocked.write_text("not a folder")
    said = refused("--target", "cpu:x86-64-v3", UA_CACHE=str(blocked))
    assert said == (
        "error: the cache of compiled kernels cannot be used: Not a directory\n"
        f"  at: {blocked}\n"
        "  do: free space, or set UA_CACHE to a folder that can be written\nnothing was written\n"
    )


def test_no_room_for_what_compilers_write(
    refused: Refused, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder for temporary files that has gone."""
    folder = tmp_path_factory.mktemp("room")
    monkeypatch.setattr("tempfile.tempdir", str(folder / "gone"))
    said = refused("--target", "cpu:x86-64-v3", UA_CACHE=str(folder / "cache"))
    assert said.startswith("error: a compiler could not be run: No such file or directory\n  at: ")
    assert said.endswith(
        "  do: free space, or set TMPDIR to a folder that can be written\nnothing was written\n"
    )


@pytest.fixture
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on a disk that has 4 KB."""
    folder = tmp_path_factory.mktemp("full")
    command = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    if (
        shutil.which("mount") is None
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("only root may mount a disk of 4 KB")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_for_temporary_files(
    refused: Refused,
    full: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The compiler, or who writes its input, says that there is no room; nothing of it is left."""
    monkeypatch.setattr("tempfile.tempdir", str(full))
    cache = tmp_path_factory.mktemp("cache")
    said = refused("--target", "cpu:x86-64-v3", UA_CACHE=str(cache), TMPDIR=str(full))
    assert said.startswith(("error: g++ failed: ", "error: a compiler could not be run: "))
    assert "No space left on device\n" in said
    assert said.endswith(
        "  do: free space, or set TMPDIR to a folder that can be written\nnothing was written\n"
    )
    assert list(full.iterdir()) == []


def test_a_full_disk_for_the_cache(refused: Refused, full: Path) -> None:
    assert refused("--target", "cpu:x86-64-v3", UA_CACHE=str(full)) == (
        "error: the cache of compiled kernels cannot be used: No space left on device\n"
        f"  at: {full}\n"
        "  do: free space, or set UA_CACHE to a folder that can be written\nnothing was written\n"
    )
    assert not [path for path in full.rglob("*") if path.is_file()]


SLOW = """\
#!/bin/sh
case "$*" in *--version*|*" -E "*) echo "slow 1.0"; exit 0;; esac
touch "$MARK"
exec sleep 60
"""


def _interruptible() -> None:
    """Tests that run in the background of a shell inherit that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_ends_the_compilers(
    model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Only this process gets the signal: its compilers are ended, and nothing is left behind."""
    folder = tmp_path_factory.mktemp("interrupted")
    for name in ("temporary", "cache"):
        (folder / name).mkdir()
    slow = folder / "slow-cxx"
    slow.write_text(SLOW)
    slow.chmod(0o755)
    before = sorted(path.name for path in model.parent.iterdir())
    running = subprocess.Popen(
        [sys.executable, "-m", "unistack_aot", str(model), "--target", "cpu:x86-64-v3"],
        cwd=ROOT,
        env=os.environ
        | {
            "UA_CXX": str(slow),
            "UA_CACHE": str(folder / "cache"),
            "TMPDIR": str(folder / "temporary"),
            "MARK": str(folder / "started"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_interruptible,  # noqa: PLW1509 - this process starts no threads here
    )
    deadline = monotonic() + 60
    while not (folder / "started").exists() and monotonic() < deadline:
        sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (130, "", "stopped\n")
    assert sorted(path.name for path in model.parent.iterdir()) == before
    assert list((folder / "temporary").glob("unistack_aot_*")) == []
    assert [path for path in (folder / "cache").rglob("*") if path.is_file()] == []


def test_plain_lines_say_how_much_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Two of six after 12 s: 24 s more; nothing before the first pause is over."""
    now = iter([0.0, 1.0, 12.0, 13.0])
    told = Lines(lambda: next(now))
    told("cpu:x86-64-v3", 1, 2)
    told("cuda:sm_90", 1, 4)
    told("cuda:sm_90", 2, 4)
    said = capsys.readouterr()
    assert said.err == "  building cpu:x86-64-v3 1 of 2, cuda:sm_90 1 of 4; about 24.0 s left\n"
