"""Symbolic dimensions of imported models: names, declarations, assumptions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.aicf.bind import dims_of
from unistack_aot.base.errors import BadInput, BadModel, Unsupported
from unistack_aot.base.symbolic import text
from unistack_aot.onnx_in import import_model

Extent = int | str | None


def model(
    inputs: dict[str, Sequence[Extent]],
    nodes: Sequence[onnx.NodeProto] = (),
    weights: dict[str, np.ndarray] | None = None,
    output: str = "",
) -> onnx.ModelProto:
    """A model of these inputs and nodes; without nodes it gives the first input back."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    if not nodes:
        nodes = [helper.make_node("Identity", [next(iter(inputs))], ["y"], "same")]
    out = onnx.ValueInfoProto(name=output or nodes[-1].output[0])
    held = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", values, [out], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def shapes(made: onnx.ModelProto, dims: dict[str, object] | None = None) -> list[list[str]]:
    imported = import_model(made, dims)  # type: ignore[arg-type]
    return [[text(d) for d in node.tensor.shape] for node in imported.graph.inputs]


def test_names_are_kept_and_the_unnamed_called_by_input_and_axis() -> None:
    made = model({"x": ["batch", "?", None, 3], "in/put": ["?", "batch", -1, 2]})
    want = [["batch", "x.1", "x.2", "3"], ["in_put.0", "batch", "in_put.2", "2"]]
    assert shapes(made) == want


def test_names_that_kernels_use_or_that_are_no_names_are_changed() -> None:
    made = model({"x": ["n", "i0", "batch size", "1st", "max"]})
    want = ["dim_n", "dim_i0", "batch_size", "dim_1st", "dim_max"]
    assert shapes(made) == [want]
    assert import_model(made, {"n": 4}).report.dims["n"] == "dim_n"
    assert shapes(made, {"n": 4, "batch_size": 2}) == [["4", "dim_i0", "2", "dim_1st", "dim_max"]]


def test_a_dimension_written_as_an_expression_of_others() -> None:
    made = model({"mask": ["past + fresh"], "x": ["fresh", "past"]})
    assert shapes(made) == [["fresh + past"], ["fresh", "past"]]
    assert shapes(model({"x": ["rows + 1"]})) == [["rows_1"]]


def test_declarations_fix_bound_and_relate() -> None:
    made = model({"x": ["batch", "height"], "z": ["?", "width"]})
    assert shapes(made, {"batch": 4}) == [["4", "height"], ["z.0", "width"]]
    assert shapes(made, {"z.0": "batch"}) == [["batch", "height"], ["batch", "width"]]
    assert shapes(made, {"height": "32*rows"})[0] == ["batch", "32*rows"]
    imported = import_model(made, {"batch": (1, 8), "height": (3, 3), "width": (2, 5, 9)})
    assert imported.ranges == {"batch": (1, 8), "z.0": (1, None), "width": (2, 9)}
    assert import_model(made, {"height": "32*rows", "rows": (1, 4)}).ranges["rows"] == (1, 4)


WAYS = "give an extent, a least and a greatest one, or an expression of other dimensions"


@pytest.mark.parametrize(
    "dims, what, hint",
    [
        ({"batsh": 1}, "the model has no dimension 'batsh'", "its dimensions are: batch, x.1"),
        ({"batch": -2}, "dimension 'batch' cannot be -2", WAYS),
        ({"batch": "batch + 1"}, "dimension 'batch' cannot be batch + 1", WAYS),
        ({"batch": "2 +"}, "dimension 'batch' cannot be 2 +", WAYS),
    ],
)
def test_bad_declarations(dims: dict[str, object], what: str, hint: str) -> None:
    with pytest.raises(BadInput) as error:
        shapes(model({"x": ["batch", "?"]}), dims)
    assert str(error.value) == f"{what}\n  do: {hint}"


def _pair(op: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, ["a", "b"], ["y"], "join", **attributes)


def test_two_dimensions_that_must_be_one_become_one() -> None:
    made = model({"a": ["?", 4], "b": ["rows", 4]}, [_pair("Add")])
    imported = import_model(made)
    assert [text(node.tensor.shape[0]) for node in imported.graph.inputs] == ["rows", "rows"]
    assert imported.report.assumed == ("a.0 is rows, because join needs a.0 = rows",)


def test_a_table_of_positions_bounds_the_sequence() -> None:
    table = np.zeros((16, 4), np.float32)
    nodes = [
        helper.make_node("Shape", ["x"], ["size"], start=0, end=1),
        helper.make_node("Slice", ["table", "zero", "size"], ["part"], "positions"),
        helper.make_node("Add", ["x", "part"], ["y"], "add"),
    ]
    weights = {"table": table, "zero": np.zeros(1, np.int64)}
    imported = import_model(model({"x": ["tokens", 4]}, nodes, weights))
    assert imported.ranges == {"tokens": (1, 16)}
    want = "tokens is at most 16, because add needs min(16, tokens) = tokens"
    assert imported.report.assumed == (want,)
    assert import_model(model({"x": ["tokens", 4]}, nodes, weights), {"tokens": 9}).ranges == {}


def test_halving_and_doubling_asks_for_a_multiple() -> None:
    scales = np.array([2.0], np.float32)
    halves = np.array([2], np.int64)
    nodes = [
        helper.make_node("Slice", ["x", "zero", "end", "zero", "two"], ["half"], "half"),
        helper.make_node(
            "Resize",
            ["half", "", "scales"],
            ["back"],
            "double",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        helper.make_node("Sub", ["x", "back"], ["y"], "skip"),
    ]
    weights = {
        "scales": scales,
        "two": halves,
        "zero": np.zeros(1, np.int64),
        "end": np.array([2**62]),
    }
    made = model({"x": ["height"]}, nodes, weights)
    imported = import_model(made, {"height": (3, 9)})
    assert text(imported.graph.inputs[0].tensor.shape[0]) == "2*height.2"
    assert imported.ranges == {"height.2": (2, 4)}
    assert imported.report.assumed[0].startswith("height is a multiple of 2, because skip needs")
    # What a package knows of its dimensions is what its model can be imported with again.
    assert import_model(made, {"height.2": (2, 4)}).ranges == imported.ranges
    unnamed = model({"x": ["side.1"]}, nodes, weights)  # a name that looks like a part's
    assert import_model(unnamed, {"side.1.2": (2, 4)}).ranges == {"side.1.2": (2, 4)}
    with pytest.raises(BadInput, match=r"no dimension 'height\.3'\n  do: .*: height, height\.2$"):
        import_model(made, {"height.3": 4})


def test_extents_that_never_agree_are_a_fault_of_the_model() -> None:
    with pytest.raises(BadModel) as error:
        import_model(model({"a": [2, 3], "b": [2, 4]}, [_pair("Add")]))
    assert str(error.value) == (
        "Add(17): extents 3, 4 do not broadcast\n  at: join\n"
        "  do: operands do not fit the operator; check the model with onnx.checker"
    )


def test_extents_that_agree_only_for_some_sizes_ask_for_a_declaration() -> None:
    made = model({"a": ["rows", 3], "b": [7, 3]}, [_pair("Add")])
    with pytest.raises(Unsupported) as error:
        import_model(made)
    assert "Add(17) whose operands agree only where 7 = rows" in str(error.value)
    assert "declare a size for dimension rows" in str(error.value)
    assert shapes(made, {"rows": 7}) == [["7", "3"], ["7", "3"]]


def test_a_multiple_is_solved_from_the_actual_extent() -> None:
    graph = import_model(model({"x": ["height", 2]}), {"height": "32*rows"}).graph
    assert dims_of(graph, {"x": (96, 2)}) == {"rows": 3}
    with pytest.raises(BadInput) as error:
        dims_of(graph, {"x": (100, 2)})
    assert str(error.value) == (
        "input x has extent 100 on axis 0\n  do: the model declares 32*rows there, which is 96 here"
    )
