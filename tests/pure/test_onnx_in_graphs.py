"""Imported graphs: order, folding, functions, regions, provenance, external data, size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.ops.single_node import expected
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.op import Constant
from unistack_aot.onnx_in import Imported, coverage, import_model
from unistack_aot.ops.control import If, Loop, Scan
from unistack_aot.rules import apply_rules

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
    opset: int = 17,
) -> onnx.ModelProto:
    held = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), held)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def value(name: str, *shape: int | str, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def kinds(imported: Imported) -> list[str]:
    return [node.op.name for node in imported.graph.nodes()]


def agree(model: onnx.ModelProto, feeds: dict[str, np.ndarray], exact: bool = True) -> Imported:
    """Assert that the imported graph computes what onnxruntime does."""
    imported = import_model(model)
    ours = evaluate_graph(imported.graph, feeds)
    for mine, theirs in zip(ours.values(), expected(model, feeds), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, *([0, 0] if exact else [1e-6, 1e-6]))
    return imported


def test_nodes_may_come_in_any_order_and_unused_ones_are_left_out() -> None:
    nodes = [
        helper.make_node("Neg", ["a"], ["y"], "last"),
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("NoSuchOperator", ["x"], ["unused"], "dead"),
    ]
    imported = import_model(make(nodes, [value("x", 3)], [value("y", 3)]))
    assert kinds(imported) == ["input", "relu", "neg"]
    assert imported.report.unused_nodes == 1
    assert [imported.origins.of(n) for n in imported.graph.nodes()] == [(), ("first",), ("last",)]


def test_unnamed_nodes_are_called_by_type_number_and_output() -> None:
    imported = import_model(
        make([helper.make_node("Relu", ["x"], ["y"])], [value("x", 3)], [value("y", 3)])
    )
    assert imported.origins.of(imported.graph.results[0]) == ("Relu_0 (y)",)


def test_shape_arithmetic_and_constants_fold_but_tables_do_not_grow() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "zero"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"], "reshape"),
        helper.make_node("Expand", ["w", "large"], ["big"], "table"),
    ]
    weights = {
        "one": np.array(1),
        "zero": np.array([0]),
        "minus": np.array([-1]),
        "w": np.ones(1, np.float32),
        "large": np.array([512, 512]),
    }
    outputs = [value("y", "a", "b"), value("big", 512, 512)]
    imported = import_model(make(nodes, [value("x", "n", "rows", 4)], outputs, weights))
    assert kinds(imported) == ["input", "reshape", "constant", "expand"]
    assert str(imported.graph.results[0].tensor) == "f32[rows, 4*dim_n]"


def test_large_quantised_weights_fold_to_the_floats_they_stand_for() -> None:
    """Four times the bytes, but not more elements: nothing dequantises weights in every run."""
    scales = (np.arange(512) + 1).astype(np.float32) / 512
    stored = (np.arange(512 * 2400) % 255 - 127).astype(np.int8).reshape(512, 2400)
    weights = {"q": stored, "s": scales, "z": np.zeros(512, np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0),
        helper.make_node("MatMul", ["x", "w"], ["y"], "product"),
    ]
    imported = import_model(make(nodes, [value("x", 3, 512)], [value("y", 3, 2400)], weights))
    graph, _ = apply_rules(imported.graph, imported.origins, 1, dict(imported.ranges))
    (product,) = graph.results
    (held,) = [arg.op.data.array for arg in product.args if isinstance(arg.op, Constant)]
    np.testing.assert_array_equal(held, stored * scales[:, None])


def test_a_comparison_of_sizes_that_is_cast_folds() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
        helper.make_node("Equal", ["n", "three"], ["same"]),
        helper.make_node("Cast", ["same"], ["number"], to=onnx.TensorProto.INT32),
        helper.make_node("Cast", ["number"], ["b"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "b"], ["y"]),
    ]
    weights = {"one": np.array(1), "three": np.array(3)}
    model = make(nodes, [value("x", 2, 3)], [value("y", 2, 3)], weights)
    agree(model, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})


def test_a_local_function_is_imported_in_place_with_its_attributes() -> None:
    inner = helper.make_node("LeakyRelu", ["a"], ["b"], "leak")
    inner.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    body = [inner, helper.make_node("Add", ["b", "a"], ["c"])]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Leaky", ["a"], ["c"], body, opsets, ["slope"])
    call = helper.make_node("Leaky", ["x"], ["y"], "call", domain="own", slope=0.25)
    model = make([call], [value("x", 4)], [value("y", 4)], None, [function], ["own"])
    x = np.array([-2, -1, 1, 2], np.float32)
    imported = agree(model, {"x": x})
    assert imported.origins.of(imported.graph.results[0]) == ("call/Add_1 (c)",)


def _if(condition: str, names: tuple[str, str] = ("Neg", "Relu")) -> onnx.NodeProto:
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["x"], [f"{op}_y"], op)], op, [], [value(f"{op}_y")]
        )
        for op in names
    ]
    return helper.make_node(
        "If", [condition], ["y"], "choice", then_branch=branches[0], else_branch=branches[1]
    )


def test_if_with_a_condition_known_from_shapes_leaves_one_branch() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Size", ["s"], ["rank"]),
        helper.make_node("Equal", ["rank", "two"], ["c"]),
        _if("c", ("Neg", "NoSuchOperator")),
    ]
    model = make(nodes, [value("x", "rows", 3)], [value("y", "rows", 3)], {"two": np.array(2)})
    assert kinds(import_model(model)) == ["input", "neg"]


@pytest.mark.parametrize("chosen", [True, False])
def test_if_by_data(chosen: bool) -> None:
    model = make([_if("c")], [value("x", 3), value("c", kind=BOOL)], [value("y", 3)])
    x = np.array([-1, 0, 2], np.float32)
    imported = agree(model, {"x": x, "c": np.array(chosen)})
    assert isinstance(imported.graph.results[0].op, If)


def _loop(trips: str, stacks: bool = False) -> onnx.NodeProto:
    body = [
        helper.make_node("Add", ["before", "x"], ["after"]),
        helper.make_node("ReduceSum", ["after"], ["total"], keepdims=0),
        helper.make_node("Less", ["total", "limit"], ["more"]),
        helper.make_node("Identity", ["going"], ["still"]),
    ]
    inputs = [value("k", kind=INT), value("going", kind=BOOL), value("before", 3)]
    outputs = [value("still" if stacks else "more", kind=BOOL), value("after", 3)]
    outputs += [value("total")] if stacks else []
    graph = helper.make_graph(body, "body", inputs, outputs)
    results = ["y", "rows"] if stacks else ["y"]
    return helper.make_node("Loop", [trips, "", "start"], results, "loop", body=graph)


def test_loop_until_a_condition_fails() -> None:
    weights = {"limit": np.array(20, np.float32), "trips": np.array(9)}
    inputs = [value("x", 3), value("start", 3)]
    model = make([_loop("trips")], inputs, [value("y", 3)], weights)
    feeds = {"x": np.array([1, 2, 3], np.float32), "start": np.zeros(3, np.float32)}
    imported = agree(model, feeds)
    assert isinstance(imported.graph.results[0].op, Loop)


def test_loop_that_stacks_a_known_number_of_rows() -> None:
    weights = {"limit": np.array(0, np.float32), "trips": np.array(4)}
    inputs = [value("x", 3), value("start", 3)]
    outputs = [value("y", 3), value("rows", 4)]
    model = make([_loop("trips", True)], inputs, outputs, weights)
    feeds = {"x": np.array([1, 2, 3], np.float32), "start": np.ones(3, np.float32)}
    agree(model, feeds)


def test_loop_whose_value_grows_is_written_out() -> None:
    body = [
        helper.make_node("Concat", ["before", "x"], ["after"], axis=0),
        helper.make_node("Identity", ["going"], ["still"]),
    ]
    inputs = [value("k", kind=INT), value("going", kind=BOOL), value("before", "n")]
    outputs = [value("still", kind=BOOL), value("after", "m")]
    graph = helper.make_graph(body, "body", inputs, outputs)
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y"], "loop", body=graph)
    model = make([loop], [value("x", 2)], [value("y", "z")], {"trips": np.array(3)})
    imported = agree(model, {"x": np.array([1, 2], np.float32)})
    assert imported.graph.results[0].tensor.shape == (8,)


@pytest.mark.parametrize("axis, backwards", [(0, 0), (1, 1)])
def test_scan(axis: int, backwards: int) -> None:
    body = [
        helper.make_node("Add", ["before", "row"], ["after"]),
        helper.make_node("Mul", ["after", "w"], ["scaled"]),
    ]
    inputs = [value("before", 3), value("row", 3)]
    graph = helper.make_graph(body, "body", inputs, [value("after", 3), value("scaled", 3)])
    scan = helper.make_node(
        "Scan",
        ["start", "x"],
        ["y", "rows"],
        "scan",
        body=graph,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
        scan_input_directions=[backwards],
        scan_output_directions=[backwards],
    )
    shape = (5, 3) if axis == 0 else (3, 5)
    outputs = [value("y", 3), value("rows", *shape)]
    weights = {"w": np.array([1, 2, 3], np.float32)}
    model = make([scan], [value("start", 3), value("x", *shape)], outputs, weights)
    rng = np.random.default_rng(0)
    x = rng.integers(-5, 5, shape).astype(np.float32)
    imported = agree(model, {"start": np.ones(3, np.float32), "x": x})
    assert any(isinstance(node.op, Scan) for node in imported.graph.nodes())


def test_external_data_is_read_beside_the_model(tmp_path: Path) -> None:
    weight = np.arange(300, dtype=np.float32).reshape(3, 100)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = make([node], [value("x", 3, 100)], [value("y", 3, 100)], {"w": weight})
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    imported = import_model(path)
    held = [n.op.data.array for n in imported.graph.nodes() if isinstance(n.op, Constant)]
    np.testing.assert_array_equal(held[0], weight)
    assert imported.name == "model.onnx"
    assert import_model(str(path)).graph.results == imported.graph.results


def test_equal_imports_give_the_very_same_nodes() -> None:
    model = make([_if("c")], [value("x", 3), value("c", kind=BOOL)], [value("y", 3)])
    assert import_model(model).graph.results == import_model(model).graph.results


def test_coverage_names_everything_at_once() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], "places"),
        helper.make_node("Neg", ["a"], ["b"], "behind"),
        helper.make_node(
            "Resize", ["x", "", "scales"], ["c"], "shrink", antialias=1, mode="linear"
        ),
        helper.make_node("Mystery", ["x"], ["d"], "mystery", domain="own"),
    ]
    outputs = [value("b"), value("c"), value("d")]
    weights = {"scales": np.array([1, 0.5], np.float32)}
    model = make(nodes, [value("x", 2, 4)], outputs, weights, domains=["own"], opset=18)
    found = [(gap.node, gap.what, gap.hint) for gap in coverage(model)]
    assert found == [
        (
            "places",
            "NonZero(18) whose result's extent depends on data",
            "move it out of the model, after its outputs",
        ),
        ("shrink", "Resize(18) with antialias", "export without it"),
        ("mystery", "Mystery(1) of domain own", "export with official ONNX operators"),
    ]


def test_a_chain_of_20000_nodes() -> None:
    count = 20_000
    nodes = [helper.make_node("Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(count)]
    for k in range(0, count, 2):
        nodes[k].op_type = "Neg"
    model = make(nodes, [value("v0", "rows", 3)], [value(f"v{count}", "rows", 3)])
    start = time.monotonic()
    imported = import_model(model)
    assert len(kinds(imported)) == count + 1
    assert time.monotonic() - start < 60
