"""Bad models on the command line: exact words, exit code 2, no traceback, nothing written."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from unistack_aot.cli.main import main

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: tuple[onnx.ValueInfoProto, ...] = (X,),
    outputs: tuple[onnx.ValueInfoProto, ...] = (Y,),
    weights: tuple[onnx.TensorProto, ...] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", list(inputs), list(outputs), list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def refusal(
    model: onnx.ModelProto | bytes | None,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *extra: str,
) -> str:
    """What compiling says; asserts the exit code, silence elsewhere and that nothing is left."""
    file = folder / "m.onnx"
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    if model is not None:
        file.write_bytes(model)
    before = sorted(path.name for path in folder.iterdir())
    assert main([str(file), "-o", str(folder / "m.pkg"), "--target", "cpu:x86-64-v3", *extra]) == 2
    assert sorted(path.name for path in folder.iterdir()) == before
    said = capsys.readouterr()
    assert said.out == "" and "Traceback" not in said.err
    assert said.err.endswith("\nnothing was written\n")
    return said.err.removesuffix("\nnothing was written\n").replace(str(folder), "DIR")


def test_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(None, tmp_path, capsys) == (
        "error: there is no file DIR/m.onnx\n  do: give the path of an .onnx file"
    )


def test_empty_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(b"", tmp_path, capsys) == (
        "error: the model is empty\n  at: DIR/m.onnx\n  do: export it again"
    )


def test_not_a_protobuf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(b"hello, world", tmp_path, capsys) == (
        "error: not an ONNX model, or cut short after 12 bytes\n  at: DIR/m.onnx\n"
        "  do: the file must be a serialised ModelProto; copy or export it again"
    )


def test_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = model_of([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString()
    assert refusal(whole[:-20], tmp_path, capsys) == (
        f"error: not an ONNX model, or cut short after {len(whole) - 20} bytes\n"
        "  at: DIR/m.onnx\n"
        "  do: the file must be a serialised ModelProto; copy or export it again"
    )


def test_missing_external_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="gone.bin")
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"], "sum")], weights=(weight,))
    assert refusal(model, tmp_path, capsys) == (
        "error: the external data file 'gone.bin' is missing\n  at: w\n"
        "  do: put it beside the model, in DIR"
    )


def test_every_unsupported_operator_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        helper.make_node("StringSplit", ["t"], ["a", "n"], "split"),
        helper.make_node("Frobnicate", ["x"], ["b"], "frob", domain="com.example"),
        helper.make_node("Relu", ["b"], ["y"], "relu"),
    ]
    text = helper.make_tensor_value_info("t", TensorProto.STRING, [2])
    count = helper.make_tensor_value_info("n", TensorProto.INT64, [2])
    said = refusal(model_of(nodes, (X, text), (Y, count)), tmp_path, capsys)
    lines = said.split("\n")
    assert lines[0].startswith("error: 2 operators and 1 input in m.onnx cannot be compiled")
    assert [line.split()[0] for line in lines[1:4]] == ["'t'", "'split'", "'frob'"]
    assert lines[-1] == "  do: change the model as said beside each line"


def test_a_cycle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("Relu", ["a"], ["y"], "third"),
    ]
    assert refusal(model_of(nodes), tmp_path, capsys) == (
        "error: nodes form a cycle: first -> second -> first\n  at: first\n"
        "  do: a model's graph must have no cycles; use Loop or Scan"
    )


def test_unknown_dimension(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])])
    assert refusal(model, tmp_path, capsys, "--dim", "seq=4") == (
        "error: the model has no dimension 'seq'\n  do: its dimensions are: batch"
    )


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (
            ["--target", "tpu"],
            "no target is called 'tpu'\n  do: use one of cpu, cuda, emulator",
        ),
        (
            ["--target", "cpu:z80"],
            (
                "no instruction-set level is called 'z80'\n"
                "  do: use one of x86-64-v2, x86-64-v3, x86-64-v4, x86-64-v4-bf16, x86-64-v4-amx, aarch64"
            ),
        ),
        (
            ["--precision", "f8"],
            "no precision is called 'f8'\n  do: use one of f32, tf32, f16, bf16",
        ),
        (
            ["--dim", "batch"],
            "the dimension 'batch' can not be read\n  do: write batch=8, batch=1..8 or batch=1..4..8",
        ),
        (
            ["--dim", "batch=8..1"],
            "a dimension from 8 to 1, typically 1\n  do: give 0 <= lowest <= typical <= highest",
        ),
        (
            ["--dim", "batch=1", "--dim", "batch=2"],
            "dimension 'batch' is given twice\n  do: give each --dim once",
        ),
        (["--frobnicate"], "unrecognized arguments: --frobnicate\n  do: unistack-aot --help"),
        (
            ["--override", "nowhere"],
            "the override folder nowhere does not exist\n  do: create it first",
        ),
        (
            ["--from", "30-cpu.facts.txt"],
            (
                "compilation cannot go on from 30-cpu.facts.txt\n"
                "  do: give a dumped 01-imported.aicf, 02-rules.aicf, 10-lowered.mcir or "
                "11-scheduled-TARGET.mcir"
            ),
        ),
    ],
)
def test_bad_options(
    extra: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])])
    assert refusal(model, tmp_path, capsys, *extra) == f"error: {words}"
