"""Models that must be refused, each with its exact message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.base.errors import BadInput, BadModel, Unsupported
from unistack_aot.onnx_in import import_model


def value(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [3])


def make(
    nodes: Sequence[onnx.NodeProto] | None = None, weights: Sequence[onnx.TensorProto] = ()
) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "only")] if nodes is None else nodes
    graph = helper.make_graph(list(nodes), "odd", [value("x")], [value("y")], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def refusal(model: object, kind: type[Exception] = BadModel) -> str:
    with pytest.raises(kind) as error:
        import_model(model)  # type: ignore[arg-type]
    return str(error.value)


def test_no_such_file(tmp_path: Path) -> None:
    path = tmp_path / "gone.onnx"
    want = f"there is no file {path}\n  do: give the path of an .onnx file"
    assert refusal(path, BadInput) == want


def test_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("this is no model at all")
    assert refusal(path) == (
        f"not an ONNX model, or cut short after 23 bytes\n  at: {path}\n"
        "  do: the file must be a serialised ModelProto; copy or export it again"
    )


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    assert refusal(path) == f"the model is empty\n  at: {path}\n  do: export it again"


def test_a_truncated_file() -> None:
    content = make().SerializeToString()
    assert refusal(content[:-5]).startswith("not an ONNX model, or cut short after")


def test_a_model_without_a_graph() -> None:
    bare = onnx.ModelProto(ir_version=8)
    want = "the model holds no graph\n  at: model\n  do: export it again"
    assert refusal(bare) == want


def test_versions() -> None:
    model = make()
    model.ir_version = 99
    assert refusal(model, Unsupported) == (
        "IR version 99, the newest known is 14\n  at: odd\n  do: export with an older onnx package"
    )
    model = make()
    model.opset_import[0].version = 99
    assert refusal(model, Unsupported) == (
        "opset 99, the newest known is 28\n  at: odd\n  do: export with opset 28 or older"
    )
    model = make()
    model.opset_import.append(helper.make_opsetid("ai.onnx", 12))
    assert refusal(model) == (
        "two opset versions of domain 'ai.onnx'\n  at: odd\n  do: export it again"
    )
    del model.opset_import[:]
    want = "the model imports no opset\n  at: odd\n  do: set opset_import"
    assert refusal(model) == want


def test_a_cycle() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], "one"),
        helper.make_node("Relu", ["a"], ["b"], "two"),
        helper.make_node("Neg", ["a"], ["y"], "three"),
    ]
    assert refusal(make(nodes)) == (
        "nodes form a cycle: one -> two -> one\n  at: one\n"
        "  do: a model's graph must have no cycles; use Loop or Scan"
    )


def test_a_value_defined_twice() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], "one"),
        helper.make_node("Neg", ["x"], ["y"], "two"),
    ]
    assert refusal(make(nodes)) == (
        "value 'y' is defined by two nodes, first by 'one'\n  at: two\n"
        "  do: names of values must be unique; export the model again"
    )


def test_a_value_never_defined() -> None:
    want = "  do: the model is malformed; export it again"
    assert refusal(make([helper.make_node("Relu", ["z"], ["y"], "only")])) == (
        f"value 'z' is used but never defined\n  at: only\n{want}"
    )
    assert refusal(make([])) == f"value 'y' is used but never defined\n  at: output y\n{want}"


def test_operands_that_do_not_fit() -> None:
    weight = numpy_helper.from_array(np.ones(3, np.int64), "w")
    text = refusal(make([helper.make_node("Add", ["x", "w"], ["y"], "sum")], [weight]))
    assert text.splitlines()[0].startswith("Add(17): add is not defined for f32, i64")
    assert text.splitlines()[1] == "  at: sum"


def test_a_missing_operand() -> None:
    assert refusal(make([helper.make_node("Add", ["x"], ["y"], "sum")])) == (
        "Add(17) with 1 inputs, it takes 2\n  at: sum\n"
        "  do: the model is malformed; export it again"
    )


def test_a_damaged_weight() -> None:
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    weight.raw_data = weight.raw_data[:-2]
    assert refusal(make([helper.make_node("Add", ["x", "w"], ["y"], "sum")], [weight])) == (
        "tensor data has 10 bytes, its shape [3] needs 12\n  at: w\n"
        "  do: the file is damaged; export it again"
    )


def _external(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    model = make([helper.make_node("Add", ["x", "w"], ["y"], "sum")], [weight])
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def test_external_data_that_is_missing_or_short(tmp_path: Path) -> None:
    path = _external(tmp_path)
    (tmp_path / "w.bin").write_bytes(b"1234")
    assert refusal(path) == (
        "external data 'w.bin' has 4 bytes from 0, the tensor needs 12\n  at: w\n"
        "  do: the data file is cut short or belongs to another model; copy it again"
    )
    (tmp_path / "w.bin").unlink()
    assert refusal(path) == (
        "the external data file 'w.bin' is missing\n  at: w\n"
        f"  do: put it beside the model, in {tmp_path}"
    )
    assert refusal(path.read_bytes()) == (
        "external data 'w.bin' of a model that is not a file\n  at: w\n"
        "  do: give the model's path, or load it with onnx.load, which reads external data"
    )


def test_external_data_outside_the_folder(tmp_path: Path) -> None:
    path = _external(tmp_path)
    model = onnx.load(str(path), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../w.bin"
    path.write_bytes(model.SerializeToString())
    assert refusal(path) == (
        "external data '../w.bin' lies outside the model's folder\n  at: w\n"
        "  do: save the model with data beside it"
    )


def test_a_sparse_weight() -> None:
    model = make()
    sparse = model.graph.sparse_initializer.add()
    sparse.values.name = "thin"
    assert refusal(model, Unsupported) == (
        "a sparse initializer\n  at: thin\n  do: export dense weights"
    )


def test_every_gap_is_listed_with_names_and_operators_aligned() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], "post/nms"),
        helper.make_node("StringSplit", ["x"], ["b"], "text"),
        helper.make_node("Concat", ["a", "b", "z"], ["y"], "join", axis=0),
    ]
    model = make(nodes)
    model.graph.input.append(value("z", TensorProto.STRING))
    assert refusal(model, Unsupported) == (
        "2 operators and 1 input in odd cannot be compiled\n"
        "  'z'         element type string                             use float, double, "
        "float16, bfloat16, bool or integers of 8 to 64 bits\n"
        "  'post/nms'  NonZero(17) whose result's extent depends on data  move it out of the "
        "model, after its outputs\n"
        "  'text'      StringSplit(17)                                    string tensors are "
        "not supported\n"
        "  do: change the model as said beside each line"
    ).replace("string                             use", "string                                use")


def test_inputs_that_are_no_tensors() -> None:
    model = make()
    del model.graph.input[0].type.tensor_type.shape.dim[:]
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "input x has no shape" in refusal(model, Unsupported)
    model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
    assert "input x has a sequence type" in refusal(model, Unsupported)


@pytest.mark.parametrize(
    "node, what",
    [
        (
            helper.make_node("Reshape", ["x", "v"], ["y"], "node"),
            "Reshape(17) with shape that depends on data",
        ),
        (
            helper.make_node("Squeeze", ["x", "one"], ["y"], "node"),
            "Squeeze(17) with axis 1 for rank 1",
        ),
        (helper.make_node("Softmax", ["x"], ["y"], "node", axis=4), "axis 4"),
        (
            helper.make_node("OneHot", ["v", "v", "x"], ["y"], "node"),
            "with depth that depends on data",
        ),
    ],
)
def test_operators_that_cannot_be(node: onnx.NodeProto, what: str) -> None:
    one = numpy_helper.from_array(np.array([1]), "one")
    model = make([node], [one])
    model.graph.input.append(helper.make_tensor_value_info("v", TensorProto.INT64, [1]))
    text = refusal(model, (Unsupported, BadModel))
    assert what in text and "node" in text
