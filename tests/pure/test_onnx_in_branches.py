"""Branches of If that cannot be typed: never imported, or imported as a refusal, or an error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.parse import parse_graph
from unistack_aot.aicf.text import constants_of, print_graph
from unistack_aot.base.errors import BadInput, IllTyped, Unsupported
from unistack_aot.onnx_in import Imported, import_model
from unistack_aot.ops.control import If, refusals

X = np.array([-1, 0, 2], np.float32)
W = np.ones(5, np.float32)


def region(ops: Sequence[str], name: str) -> onnx.GraphProto:
    """The first operator takes x and w, if it takes two operands; the others its result."""
    first = ["x", "w"] if ops[0] in ("Add", "Mul") else ["x"]
    nodes = [helper.make_node(ops[0], first, [f"{name}0"], f"{name}/{ops[0]}")]
    for k, op in enumerate(ops[1:]):
        nodes.append(helper.make_node(op, [f"{name}{k}"], [f"{name}{k + 1}"], f"{name}/{op}"))
    result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    return helper.make_graph(nodes, name, [], [result])


def model(then: Sequence[str], otherwise: Sequence[str]) -> onnx.ModelProto:
    """y = then or otherwise, by c, over x[rows] and w[others]."""
    node = helper.make_node(
        "If",
        ["c"],
        ["y"],
        "choice",
        then_branch=region(then, "t"),
        else_branch=region(otherwise, "e"),
    )
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows"]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, ["others"]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows"])
    graph = helper.make_graph([node], "g", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def imported(then: Sequence[str], otherwise: Sequence[str]) -> Imported:
    return import_model(model(then, otherwise), {"rows": 3, "others": 5})


REASON = (
    "the else branch of choice cannot run: Add(17): extents 3, 5 do not broadcast (at choice/e/Add)"
)


@pytest.mark.parametrize("after", [(), ("Neg",), ("NoSuchOperator",)])
def test_a_branch_that_cannot_be_typed_refuses_when_it_is_taken(after: tuple[str, ...]) -> None:
    """What else is wrong with such a branch does not matter: nobody can run it."""
    found = imported(("Neg",), ("Add", *after))
    (result,) = found.graph.results
    assert isinstance(result.op, If)
    assert [each.reason for each in refusals(found.graph)] == [REASON]
    assert found.report.refused == (REASON,)
    feeds = {"x": X, "w": W}
    np.testing.assert_array_equal(
        evaluate_graph(found.graph, {**feeds, "c": np.array(True)})["y"], -X
    )
    with pytest.raises(BadInput) as error:
        evaluate_graph(found.graph, {**feeds, "c": np.array(False)})
    assert error.value.what == REASON


def test_the_then_branch_may_be_the_one() -> None:
    found = imported(("Mul",), ("Neg",))
    assert [each.reason for each in refusals(found.graph)] == [
        "the then branch of choice cannot run: Mul(17): extents 3, 5 do not broadcast (at choice/t/Mul)"
    ]


def test_a_refusing_graph_reads_back() -> None:
    graph = imported(("Neg",), ("Add",)).graph
    assert parse_graph(print_graph(graph), constants_of(graph)) == graph


def test_a_condition_known_at_compile_time_leaves_the_other_branch_unread() -> None:
    proto = model(("Neg",), ("Add", "NoSuchOperator"))
    del proto.graph.input[2]
    proto.graph.initializer.append(helper.make_tensor("c", TensorProto.BOOL, [], [True]))
    found = import_model(proto, {"rows": 3, "others": 5})
    assert [node.op.name for node in found.graph.nodes()] == ["input", "neg"]
    assert found.report.refused == ()


def test_two_branches_that_cannot_be_typed_are_an_error() -> None:
    with pytest.raises(IllTyped, match="extents 3, 5 do not broadcast"):
        imported(("Add",), ("Mul",))


def test_an_unknown_operator_in_a_typed_branch_is_still_a_gap() -> None:
    with pytest.raises(Unsupported, match="NoSuchOperator"):
        imported(("Neg",), ("Relu", "NoSuchOperator"))
