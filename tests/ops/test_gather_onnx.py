"""Importers of gather, scatter, one-hot, TopK and CumSum, node by node, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.single_node import check_node, draw, ints
from unistack_aot.ops.gather import Gather
from unistack_aot.ops.slices import Slice

PLACES = np.array([[2, -1], [0, 1]], np.int64)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("known", [[], [1]])
@pytest.mark.parametrize("index", [np.array(1), np.array([2, 0]), PLACES])
def test_gather(axis: int, known: list[int], index: np.ndarray) -> None:
    check_node("Gather", [draw(4, 3, 5), index], 13, known=known, axis=axis)
    check_node("Gather", [draw(4, 3, 5), index.astype(np.int32)], 1, known=known, axis=axis)


def test_gather_of_evenly_spaced_constants_is_a_slice() -> None:
    imported = check_node("Gather", [draw(6, 2), ints(4, 2, 0)], 13, known=[1])
    assert isinstance(imported.graph.results[0].op, Slice)
    imported = check_node("Gather", [draw(6, 2), ints(4, 2, 1)], 13, known=[1])
    assert isinstance(imported.graph.results[0].op, Gather)


def test_gather_out_of_range_reads_zero() -> None:
    from_node = Gather(0).reference(draw(3, 2), ints(1, 3, -4))
    np.testing.assert_array_equal(from_node[0], draw(3, 2)[1])
    np.testing.assert_array_equal(from_node[1:], np.zeros((2, 2), np.float32))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis: int) -> None:
    check_node("GatherElements", [draw(3, 4), draw(2, 3, dtype="int64") % 3], 13, axis=axis)


def test_gather_nd() -> None:
    check_node("GatherND", [draw(3, 4, 2), np.array([[0, 1], [-1, 3]])], 13)
    check_node("GatherND", [draw(2, 3, 4), np.array([[[0], [2]], [[1], [-1]]])], 12, batch_dims=1)
    check_node("GatherND", [draw(2, 3, 4), np.array([[[0, 2, 1]], [[1, 1, 1]]])], 12)


@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_elements(axis: int) -> None:
    index = np.array([[0, 1, 2], [1, -1, 0]])
    index = index if axis else np.array([[0, 1, 2], [1, 2, 0]])
    inputs = [draw(3, 4), index, draw(2, 3)]
    check_node("ScatterElements", inputs, 13, axis=axis)
    check_node("Scatter", inputs, 9, axis=axis)


@pytest.mark.parametrize("reduction, opset", [("add", 16), ("mul", 16), ("min", 18), ("max", 18)])
def test_scatter_with_reduction(reduction: str, opset: int) -> None:
    index = np.array([[0, 1, 1], [1, -1, 1]])
    inputs = [draw(3, 4), index, draw(2, 3)]
    check_node("ScatterElements", inputs, opset, axis=1, reduction=reduction, tolerance=1e-6)
    places = np.array([[0], [2], [0]])
    inputs = [draw(3, 4), places, draw(3, 4, seed=1)]
    check_node("ScatterND", inputs, opset, reduction=reduction, tolerance=1e-6)


def test_scatter_nd() -> None:
    check_node("ScatterND", [draw(3, 4, 2), np.array([[0, 1], [-1, 3]]), draw(2, 2)], 13)
    check_node("ScatterND", [draw(4), np.array([[1], [3]]), draw(2)], 11)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    values = np.array([0.5, 2.0], np.float32)
    check_node("OneHot", [ints(1, -1, 7, 0), np.array(4), values], 11, known=[1], axis=axis)
    check_node("OneHot", [draw(2, 3, dtype="int64"), np.array([4]), values], 9, [1], axis=axis)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("axis", [0, -1])
def test_top_k_with_ties(largest: int, dtype: str, axis: int) -> None:
    x = np.round(draw(5, 6), 0).astype(dtype)
    check_node("TopK", [x, ints(4)], 11, [1], outputs=2, axis=axis, largest=largest, sorted=1)


def test_top_k_of_old_opsets() -> None:
    check_node("TopK", [draw(3, 6)], 1, outputs=2, axis=1, k=2)
    check_node("TopK", [draw(3, 6), ints(2)], 10, known=[1], outputs=2)


def test_gather_of_a_symbolic_batch() -> None:
    table, ids = draw(7, 4), draw(2, 3, dtype="int64") % 7
    imported = check_node("Gather", [table, ids], 13, known=[0], dims={1: ("B", "S")})
    assert str(imported.graph.results[0].tensor) == "f32[B, S, 4]"
    assert set(imported.ranges) == {"B", "S"}
