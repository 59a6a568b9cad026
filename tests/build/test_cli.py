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

from unistack_aot import load, pipeline
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
    """What a command prints; nothing on standard error but how far a slow machine is."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    assert all(line.startswith("  building ") for line in captured.err.splitlines())
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


@pytest.mark.parametrize(
    "stage",
    ["01-imported.aicf", "02-rules.aicf", "10-lowered.mcir", "11-scheduled-cpu-x86-64-v3.mcir"],
)
def test_compilation_goes_on_from_a_stage(
    stage: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the model, and without doing again what comes before; the package is the same."""
    start = folder / "stages" / stage
    out = folder / "from.pkg"

    def refuse(*_: object) -> None:
        raise AssertionError("a stage before the given one is done again")

    earlier = ["import_model", "apply_rules", "lower_graph", "verify_program"]
    for name in earlier[: 1 + (stage >= "02") + (stage >= "10")]:
        monkeypatch.setattr(pipeline, name, refuse)
    shown = said(capsys, "--from", start, "-o", out)
    assert "not checked      without the model there is nothing to compare with" in shown
    monkeypatch.undo()
    shown = said(capsys, folder / "m.onnx", "--from", start, "-o", out)
    assert "checked          cpu against onnxruntime" in shown
    # the recorded options differ, nothing else does
    members = [
        {m["name"]: m["sha256"] for m in json.loads(said(capsys, "show", p, "--json"))["members"]}
        for p in (out, folder / "m.pkg")
    ]
    assert members[0].pop("lock.json") != members[1].pop("lock.json")
    assert members[0] == members[1]


def edited(folder: Path, stage: str, old: str, new: str) -> Path:
    """A copy of the stages in which one file has another text."""
    place = folder / f"edited-{stage}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "stages", place)
    text = (place / stage).read_text()
    assert old in text
    (place / stage).write_text(text.replace(old, new))
    return place


@pytest.mark.parametrize(
    ("stage", "old", "new"),
    [
        ("02-rules.aicf", "add(%1, ", "sub(%1, "),
        ("10-lowered.mcir", "x0[i0, i1] + x1[i1]", "x0[i0, i1] - x1[i1]"),
    ],
)
@pytest.mark.parametrize("how", ["--from", "--override"])
def test_an_edited_stage_changes_the_result(
    folder: Path, stage: str, old: str, new: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bias is subtracted instead: it runs, the numbers are those, and the check finds it."""
    place, out = edited(folder, stage, old, new), folder / "edited-stage.pkg"
    if how == "--from":
        words: list[object] = ["--from", place / stage]
    else:
        (folder / "only").mkdir(exist_ok=True)
        for file in (folder / "only").iterdir():
            file.unlink()
        shutil.copy(place / stage, folder / "only")
        words = [*DIM, "--override", folder / "only"]
    shown = said(capsys, folder / "m.onnx", "-o", out, *words, code=1)
    assert "check FAILED on cpu" in shown
    x = RANDOM.standard_normal((2, 24)).astype(np.float32)
    scores = x @ WEIGHT - np.arange(16, dtype=np.float32)
    want = np.exp(scores - scores.max(1, keepdims=True))
    want /= want.sum(1, keepdims=True)
    np.testing.assert_allclose(load(out, device="cpu").run({"x": x})["p"], want, atol=1e-5)


@pytest.mark.parametrize(
    ("stage", "old", "new", "why", "line"),
    [
        ("02-rules.aicf", "add(%1, ", "plus(%1, ", "AICF text: there is no op plus", "= plus(%1"),
        (
            "02-rules.aicf",
            "return p=",
            "return q=",
            "the outputs are not the model's",
            None,
        ),
        (
            "10-lowered.mcir",
            "x0[i0, i1] + x1[i1]",
            "x0[i0, i1] + x1[i7]",
            "i7 in i7 is no loop variable or dimension here",
            "y0[i0, i1] = x0[i0, i1] + x1[i7]",
        ),
        (
            "10-lowered.mcir",
            "for i0 in batch, i1 in 16 {",
            "for i0 in batch, i1 in 16 [",
            "MCIR text: '{' expected, not '['",
            "for i0 in batch, i1 in 16 [",
        ),
        ("10-lowered.mcir", "copy v2 -> out_0", "copy v1 -> v2", "", None),
        (
            "11-scheduled-cpu-x86-64-v3.mcir",
            "input in_0: f32[batch, 24]",
            "input in_0: f32[batch, 25]",
            "the inputs and outputs are not the model's",
            None,
        ),
    ],
)
@pytest.mark.parametrize("how", ["--from", "--override"])
def test_a_wrong_stage_is_refused_with_file_and_line(
    folder: Path,
    stage: str,
    old: str,
    new: str,
    why: str,
    line: str | None,
    how: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = edited(folder, stage, old, new)
    words = ["--from", place / stage] if how == "--from" else ["--override", place]
    if how == "--override":
        for file in place.iterdir():
            if file.name != stage:
                file.unlink()
        words = [*DIM, *words]
    out = folder / "refused.pkg"
    assert main([str(w) for w in (folder / "m.onnx", "-o", out, *words)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {why}") and "fault of unistack-aot" not in error
    assert f"  at: {place / stage}" in error and not out.exists()
    if line is not None:
        number = 1 + next(
            k for k, text in enumerate((place / stage).read_text().splitlines()) if line in text
        )
        assert f", line {number}: " in error and line in error


def test_a_stage_without_its_company_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "alone").mkdir()
    shutil.copy(folder / "stages" / "10-lowered.mcir", folder / "alone")
    words = ["--from", str(folder / "alone" / "10-lowered.mcir"), "-o", str(folder / "a.pkg")]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        f"error: model.json is missing beside the stage\n  at: {folder / 'alone'}\n"
        "  do: keep a stage in the folder that --dump wrote, or copy that folder whole\n"
        "nothing was written\n"
    )
    shutil.copy(folder / "stages" / "model.json", folder / "alone")
    assert main(words) == 2
    assert "the content of constant c0 is not beside the stage" in capsys.readouterr().err


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


def test_no_level_of_verification_changes_a_package(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    apply = pipeline.apply_rules
    monkeypatch.setattr(
        pipeline,
        "apply_rules",
        lambda g, o, level, r: (seen.append(level), apply(g, o, level, r))[1],
    )
    made: list[bytes] = []
    for level in (1, 3):
        output = folder / f"level{level}.pkg"
        words = (folder / "m.onnx", "-o", output, *DIM, "--no-check")
        said(capsys, *words, "--verify", level)
        made.append(output.read_bytes())
    assert seen == [1, 3] and made[0] == made[1]
    words = (folder / "m.onnx", "-o", folder / "level4.pkg", *DIM, "--verify", 4)
    assert main([str(word) for word in words]) == 2
    assert "no verification level 4\n  do: use 1, 2 or 3" in capsys.readouterr().err


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
        "in x f32[batch, 24]",
        "dim batch 1..8, typically 8",
        "cpu/x86-64-v3.so",
        "# fc/matmul, fc/bias",
        "2 recorded runs for the self-test",
        "every hash is right",
    ):
        assert words in " ".join(shown.split()), words


def test_page_links_nodes_and_kernels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = folder / "page.html"
    said(capsys, "show", folder / "m.pkg", "--html", page, "--dump", folder / "stages")
    text = page.read_text()
    for anchor in ("cpu-x86-64-v3-k0", "cpu-x86-64-v3-source-k0", "cpu-x86-64-v3-node-probs"):
        assert f"id='{anchor}'" in text and f"href='#{anchor}'" in text, anchor


def test_explain_names_nodes_and_bytes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "explain", folder / "m.pkg", "--kernel", 0)
    assert (
        "<- fc: matmul, bias\n" in shown and "\n    launch 0           fc: matmul, bias\n" in shown
    )
    # x, w and b are read and a is written, 8 rows: 4 * (8*24 + 24*16 + 16 + 8*16) bytes
    assert "\n  moves                2.9 KB far (unfused " in shown


def test_explain_finds_a_node(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explain", folder / "m.pkg", "--node")
    assert said(capsys, *words, "fc/bias") == (
        "node fc/bias  Add\n  cpu:x86-64-v3        kernel 0 (k0), launch 0, with fc: matmul\n"
    )
    facts = json.loads(said(capsys, *words, "probs", "--json"))
    assert facts["launches"] == {"cpu:x86-64-v3": [{"launch": 1, "kernel": 1, "nodes": ["probs"]}]}
    assert main([str(w) for w in (*words, "fc/baas")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the model has no node 'fc/baas'\n")
    assert error.endswith("  do: did you mean fc/bias?\n")


def chain() -> onnx.ModelProto:
    """Two equal layers, which share a kernel, and nodes that no kernel computes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], "/shape"),
        helper.make_node("Reshape", ["x", "s"], ["x0"], "/reshape"),
        helper.make_node("MatMul", ["x0", "w"], ["a"], "/one/MatMul"),
        helper.make_node("Tanh", ["a"], ["b"], "/one/Tanh"),
        helper.make_node("MatMul", ["b", "v"], ["c"], "/two/MatMul"),
        helper.make_node("Tanh", ["c"], ["d"], "/two/Tanh"),
        helper.make_node("Neg", ["d"], ["e"], "/three/Neg"),
        helper.make_node("Neg", ["e"], ["y"], "/three/Neg_1"),
        helper.make_node("Exp", ["d"], ["z"], "/unused"),
    ]
    kind = TensorProto.FLOAT
    weights = [
        numpy_helper.from_array(RANDOM.standard_normal((24, 24)).astype(np.float32), name)
        for name in ("w", "v")
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, ["batch", 24])],
        [helper.make_tensor_value_info("y", kind, ["batch", 24])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_shared_kernel_says_what_each_launch_computes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(chain(), tmp_path / "c.onnx")
    said(capsys, tmp_path / "c.onnx", "-o", tmp_path / "c.pkg", *DIM)
    (tmp_path / "c.onnx").unlink()  # the package alone knows
    facts = json.loads(said(capsys, "explain", tmp_path / "c.pkg", "--json"))
    (kernel,) = (k for k in facts["kernels"] if len(k["launches"]) == 2)
    nodes = [launch["nodes"][:2] for launch in kernel["launches"]]
    assert nodes == [["/one/MatMul", "/one/Tanh"], ["/two/MatMul", "/two/Tanh"]]
    gone = {
        "/unused": "no output needs it",
        "/shape": "computed from the sizes of the inputs, by no kernel",
        "/three/Neg": "rule merge-affine",
    }
    for name, reason in gone.items():
        shown = said(capsys, "explain", tmp_path / "c.pkg", "--node", name)
        assert shown.endswith(f"gone: {reason}\n"), shown


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
