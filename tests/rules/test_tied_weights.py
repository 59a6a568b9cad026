"""One weight for a table and, transposed, for a product: the package holds it once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.rules.test_examples import assert_equal_graphs
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Constant
from unistack_aot.onnx_in import import_model
from unistack_aot.rules import apply_rules

ROWS, WIDTH = 900, 400  # 1.4 MB


def model(tied: bool, between: str | None) -> onnx.ModelProto:
    """ids -> table -> logits; `between` is an operator on the weight before its transposition."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    held = [numpy_helper.from_array(table, "table")]
    if not tied:
        held.append(numpy_helper.from_array(table[::-1].copy(), "head"))
    source = "table" if tied else "head"
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"], "embed")]
    if between:
        nodes.append(helper.make_node(between, [source], ["other"], "between"))
        source = "other"
    nodes += [
        helper.make_node("Transpose", [source], ["wt"], "turn", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["logits"], "head"),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", ROWS])
    graph = helper.make_graph(nodes, "tied", [ids], [out], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def weights(graph: Graph) -> list[tuple[int, ...]]:
    """Shapes of the large constants."""
    ops = (node.op for node in graph.nodes())
    return [
        op.data.array.shape for op in ops if isinstance(op, Constant) and op.data.array.size > 9
    ]


@pytest.mark.parametrize(
    ("tied", "between", "count"),
    [(True, None, 1), (True, "Neg", 1), (False, None, 2), (False, "Neg", 2)],
)
def test_large_constants_are_held_once(tied: bool, between: str | None, count: int) -> None:
    imported = import_model(model(tied, between))
    assert len(weights(imported.graph)) == count
    graph, _ = apply_rules(imported.graph, imported.origins)
    assert len(weights(graph)) == count
    assert "transpose" not in [node.op.name for node in graph.nodes()]
    assert_equal_graphs(imported.graph, graph, {"ids": np.array([3, 899, 0])})
