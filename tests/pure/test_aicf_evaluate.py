"""The graph evaluator: bound dimensions, wide evaluation, several results, long chains."""

from __future__ import annotations

import numpy as np
import pytest

from unistack_aot.aicf.bind import bind_graph, dims_of
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Input
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.dtypes import f32
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import symbol
from unistack_aot.ops.core import constant, extent_of, item
from unistack_aot.ops.fold import Moments
from unistack_aot.ops.pointwise import Add, Exp, Mul
from unistack_aot.ops.reindex import Reshape
from unistack_aot.ops.softmax import Softmax

N, M = symbol("N"), symbol("M")


def graph_of(*results: Node, inputs: tuple[Node, ...]) -> Graph:
    return Graph("g", inputs, tuple((f"y{k}", node) for k, node in enumerate(results)))


def matrix() -> Node:
    return Node(Input("x", TensorType(f32, (N, M))))


def test_symbols_take_the_feeds_extents() -> None:
    x = matrix()
    flat = Node(Reshape((N * M,)), (x,))
    graph = graph_of(flat, extent_of(x, (0, 1)), inputs=(x,))
    found = evaluate_graph(graph, {"x": np.ones((2, 3), np.float32)})
    assert found["y0"].shape == (6,)
    assert found["y1"] == 6


def test_contradicting_feeds_are_refused() -> None:
    x, y = matrix(), Node(Input("y", TensorType(f32, (N, 4))))
    graph = graph_of(x, y, inputs=(x, y))
    assert dims_of(graph, {"x": (2, 3), "y": (2, 4)}) == {"N": 2, "M": 3}
    with pytest.raises(BadInput, match="input y has extent 3 on axis 0"):
        dims_of(graph, {"x": (2, 3), "y": (3, 4)})
    with pytest.raises(BadInput, match="input y has extent 5 on axis 1"):
        dims_of(graph, {"x": (2, 3), "y": (2, 5)})
    with pytest.raises(BadInput, match="no value for input y"):
        evaluate_graph(graph, {"x": np.ones((2, 3), np.float32)})


def test_binding_keeps_what_has_no_symbols() -> None:
    x = Node(Input("x", TensorType(f32, (2, 3))))
    graph = graph_of(Node(Softmax(1), (x,)), inputs=(x,))
    assert bind_graph(graph, {"N": 4}).results == graph.results


def test_wide_evaluation_keeps_f64() -> None:
    x = matrix()
    graph = graph_of(Node(Softmax(1), (Node(Mul(), (x, constant(0.1, x))),)), inputs=(x,))
    data = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    narrow, wide = evaluate_graph(graph, {"x": data}), evaluate_graph(graph, {"x": data}, wide=True)
    assert narrow["y0"].dtype == np.float32
    assert wide["y0"].dtype == np.float64
    scaled = data.astype(np.float64) * np.float64(np.float32(0.1))
    exact = np.exp(scaled) / np.exp(scaled).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(wide["y0"], exact, rtol=1e-14)


def test_results_of_one_op_are_selected() -> None:
    x = matrix()
    moments = Node(Moments((1,)), (x,))
    graph = graph_of(item(moments, 1), item(moments, 0), inputs=(x,))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = evaluate_graph(graph, {"x": data})
    np.testing.assert_allclose(found["y0"], data.var(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(found["y1"], data.mean(axis=1, keepdims=True), rtol=1e-6)


def test_shared_values_and_deep_chains() -> None:
    x = Node(Input("x", TensorType(f32, (1,))))
    value, one = Node(Exp(), (x,)), constant(1, x)
    for _ in range(5000):
        value = Node(Add(), (value, one))
    graph = graph_of(Node(Add(), (value, value)), value, inputs=(x,))
    found = evaluate_graph(graph, {"x": np.zeros(1, np.float32)})
    assert found["y0"] == 2 * 5001
    assert found["y1"] == 5001
