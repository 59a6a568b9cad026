"""The command line on a model that compiles: what it prints, writes and returns."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.cli.main import VERBS, main

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((24, 16)).astype(np.float32)
DIM = ["--dim", "batch=1..8", "--target", "cpu:x86-64-v3"]
STAGES = {
    "00-model.txt",
    "01-imported.aicf",
    "02-rules.aicf",
    "10-lowered.mcir",
    "11-scheduled-",
    "20-",
    "30-",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with m.onnx, and its package and stages as the bare form makes them."""
    folder = tmp_path_factory.mktemp("cli")
    bias = numpy_helper.from_array(np.arange(16, dtype=np.float32), "b")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], "fc/matmul"),
            helper.make_node("Add", ["a", "b"], ["c"], "fc/bias"),
            helper.make_node("Softmax", ["c"], ["p"], "probs"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 24])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, ["batch", 16])],
        [numpy_helper.from_array(WEIGHT, "w"), bias],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "m.onnx")
    words = [str(folder / "m.onnx"), "-o", str(folder / "m.pkg"), *DIM]
    assert main([*words, "--dump", str(folder / "stages"), "--quiet"]) == 0
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """What a command prints; nothing on standard error."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_compiling_says_what_came_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, folder / "m.onnx", "-o", folder / "again.pkg", *DIM).splitlines()
    assert lines[0].startswith("m.onnx  3 nodes, opset 17  ->  2 kernels  (rules: ")
    assert lines[1].split()[:4] == ["cpu:x86-64-v3", "2", "kernels", "built"]
    assert "arena 64 B at batch 1, 512 B at batch 8 (lower bound 512 B)" in lines[1]
    assert lines[2].startswith("  checked          cpu against onnxruntime: worst ")
    assert "(batch 1; batch 4; batch 8; " in lines[2]
    assert lines[3].startswith(f"wrote {folder / 'again.pkg'}  ")
    assert (folder / "again.pkg").read_bytes() == (folder / "m.pkg").read_bytes()


def test_json_holds_the_same_facts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(said(capsys, folder / "m.onnx", "-o", folder / "j.pkg", *DIM, "--json"))
    assert (facts["nodes"], facts["opset"]) == (3, 17)
    assert facts["variants"][0]["kernels"] == 2
    assert facts["checks"][0]["passed"] is True
    assert {r["case"] for r in facts["checks"][0]["results"]} == {"batch 1", "batch 4", "batch 8"}
    assert facts["bytes"] == (folder / "j.pkg").stat().st_size


def test_every_stage_is_dumped(folder: Path) -> None:
    index = (folder / "stages" / "index.txt").read_text().splitlines()
    names = [line.split()[0] for line in index]
    assert names == sorted(names)
    for stage in STAGES:
        assert any(name.startswith(stage) for name in names), stage
    for name in names:
        assert (folder / "stages" / name).stat().st_size


@pytest.mark.parametrize("stage", ["01-imported.aicf", "02-rules.aicf", "10-lowered.mcir"])
def test_compilation_goes_on_from_a_stage(
    stage: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = folder / "stages" / stage
    out = folder / "from.pkg"
    said(capsys, folder / "m.onnx", "-o", out, *DIM, "--from", start)
    # the recorded options differ, the machine code does not
    members = [
        {m["name"]: m["sha256"] for m in json.loads(said(capsys, "show", p, "--json"))["members"]}
        for p in (out, folder / "m.pkg")
    ]
    assert members[0]["cpu/x86-64-v3.so"] == members[1]["cpu/x86-64-v3.so"]


def test_an_edited_kernel_is_built_and_found_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kernel whose source is changed to be wrong: exit code 1, and the check says where."""
    (folder / "edited").mkdir()
    (source,) = (folder / "stages").glob("20-*-kernels_0.cpp")
    text = source.read_text()
    wrong = text.replace("+ x1[", "+ 1.5f * x1[")
    assert wrong != text
    (folder / "edited" / source.name).write_text(wrong)
    words = [folder / "m.onnx", "-o", folder / "edited.pkg", *DIM, "--override", folder / "edited"]
    shown = said(capsys, *words, code=1)
    assert "check FAILED on cpu" in shown and "WRONG" in shown
    verdict = said(capsys, "check", folder / "m.onnx", folder / "edited.pkg", "--no-bisect", code=1)
    assert verdict.endswith("wrong: 3 of 3 outputs on cpu\n")
    tested = said(capsys, "run", folder / "edited.pkg", "--selftest", code=1)
    assert tested.endswith("wrong\n")


def test_check_takes_sizes_and_arrays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = (folder / "m.onnx", folder / "m.pkg")
    assert "batch 5" in said(capsys, "check", *pair, "--dim", "batch=5")
    np.save(folder / "x.npy", np.zeros((3, 24), np.float32))
    shown = said(capsys, "check", *pair, "--input", f"x={folder / 'x.npy'}")
    assert "given inputs" in shown and shown.endswith("good: 1 outputs within tolerance on cpu\n")


def test_run_writes_outputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = RANDOM.standard_normal((3, 24)).astype(np.float32)
    np.savez(folder / "feeds.npz", x=x)
    words = ("run", folder / "m.pkg", "--input", folder / "feeds.npz", "--output", folder / "out")
    shown = said(capsys, *words, "--time", "--repeat", 3, "--profile", "--device", "cpu")
    assert "3 runs: median " in shown and "fc/matmul, fc/bias" in shown
    scores = x @ WEIGHT + np.arange(16, dtype=np.float32)
    want = np.exp(scores - scores.max(1, keepdims=True))
    want /= want.sum(1, keepdims=True)
    np.testing.assert_allclose(np.load(folder / "out" / "p.npy"), want, atol=1e-5)


def test_the_package_tests_itself(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "run", folder / "m.pkg", "--selftest").endswith("\ngood\n")


def test_show_lists_the_parts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "show", folder / "m.pkg", "--steps", "--buffers", "--verify")
    for words in (
        "in      x          f32[batch, 24]",
        "dim     batch      1..8, typically 8",
        "cpu/x86-64-v3.so",
        "# fc/matmul, fc/bias",
        "2 recorded runs for the self-test",
        "every hash is right",
    ):
        assert words in shown, words


def test_page_links_nodes_and_kernels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = folder / "page.html"
    said(capsys, "show", folder / "m.pkg", "--html", page, "--dump", folder / "stages")
    text = page.read_text()
    for anchor in ("cpu-x86-64-v3-k0", "cpu-x86-64-v3-source-k0", "cpu-x86-64-v3-node-probs"):
        assert f"id='{anchor}'" in text and f"href='#{anchor}'" in text, anchor


def test_explain_names_nodes_and_bytes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "explain", folder / "m.pkg", "--kernel", 0)
    assert "<- fc/matmul, fc/bias" in shown and "far memory" in shown


def test_doctor_lists_tools_and_gaps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "doctor", folder / "m.onnx")
    assert "target cpu" in shown and shown.endswith("m.onnx: everything in it can be compiled\n")
    model = onnx.load(folder / "m.onnx")
    model.graph.node[2].op_type = "Hardmost"
    onnx.save(model, folder / "odd.onnx")
    shown = said(capsys, "doctor", folder / "odd.onnx", code=2)
    assert "odd.onnx: 1 thing cannot be compiled\n  'probs'  Hardmost(17)  " in shown


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert "\nexample: unistack-aot " in capsys.readouterr().out


def test_run_needs_no_compiler(folder: Path) -> None:
    """Where only the runtime is installed: neither onnx nor the passes are imported."""
    shutil.copy(folder / "m.pkg", folder / "moved.pkg")
    script = (
        "import sys\n"
        "from unistack_aot.cli.main import main\n"
        f"code = main(['run', {str(folder / 'moved.pkg')!r}, '--device', 'cpu', '--quiet'])\n"
        "heavy = [m for m in ('onnx', 'onnxruntime', 'unistack_aot.pipeline') if m in sys.modules]\n"
        "print(code, heavy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 []\n"
