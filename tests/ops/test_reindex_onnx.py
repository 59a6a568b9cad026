"""Importers of the reindex family, node by node, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.single_node import check_node, draw, ints
from unistack_aot.aicf.op import Constant
from unistack_aot.base.symbolic import symbol, text

BIG = 2**63 - 1


@pytest.mark.parametrize("opset", [5, 13, 14, 21])
@pytest.mark.parametrize(
    "shape", [(2, 12), (-1,), (0, -1, 2), (1, 3, 4, 2, 1), (4, 6), (3, 2, -1), (0, 0, 0)]
)
def test_reshape(shape: tuple[int, ...], opset: int) -> None:
    check_node("Reshape", [draw(2, 3, 4), ints(*shape)], opset, known=[1])


def test_reshape_attribute_form_means_what_the_input_form_means() -> None:
    check_node("Reshape", [draw(2, 3, 4), ints(4, -1)], 5, known=[1])


def test_reshape_to_no_elements_with_allowzero() -> None:
    check_node("Reshape", [draw(2, 0, 4), ints(0, 7)], 14, known=[1], allowzero=1)


@pytest.mark.parametrize(
    "dims, shape, want",
    [
        (("B", 3, 4), (-1, 12), ["B", "12"]),
        (("B", "S", 4), (0, 0, 2, 2), ["B", "S", "2", "2"]),
        (("B", "S", 4), (-1, 4), ["B*S", "4"]),
        (("B", "S", 4), (0, -1), ["B", "4*S"]),
        ((2, "S", 4), (-1, 2), ["4*S", "2"]),
    ],
)
def test_reshape_of_symbolic_extents(
    dims: tuple[str | int, ...], shape: tuple[int, ...], want: list[str]
) -> None:
    array = draw(*(5 if d == "S" else 3 if d == "B" else int(d) for d in dims))
    imported = check_node("Reshape", [array, ints(*shape)], 13, known=[1], dims={0: dims})
    assert [text(d) for d in imported.graph.results[0].tensor.shape] == want


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3, 3])
def test_flatten(axis: int) -> None:
    check_node("Flatten", [draw(2, 3, 4)], 13, axis=axis)


@pytest.mark.parametrize("axes", [(0,), (0, 2), (-1,), (0, -2)])
def test_squeeze_and_unsqueeze(axes: tuple[int, ...]) -> None:
    x = draw(1, 3, 1, 1)
    check_node("Squeeze", [x, ints(*axes)], 13, known=[1])
    check_node("Squeeze", [x], 11, axes=axes)
    check_node("Unsqueeze", [x, ints(*axes)], 13, known=[1])
    if min(axes) >= 0:
        check_node("Unsqueeze", [x], 9, axes=axes)


def test_squeeze_of_every_unit_axis() -> None:
    check_node("Squeeze", [draw(1, 3, 1, 1)], 13)


@pytest.mark.parametrize("perm", [None, (0, 2, 1), (2, 0, 1)])
def test_transpose(perm: tuple[int, ...] | None) -> None:
    check_node("Transpose", [draw(2, 3, 4)], 13, **({} if perm is None else {"perm": perm}))


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2, 1, 4), (1,), (3, 1)])
def test_expand(shape: tuple[int, ...]) -> None:
    check_node("Expand", [draw(3, 1) if len(shape) < 3 else draw(1, 4), ints(*shape)], 13, [1])


def test_tile() -> None:
    check_node("Tile", [draw(2, 3), ints(2, 3)], 13, known=[1])
    check_node("Tile", [draw(2, 3, dtype="int64"), ints(1, 1)], 6, known=[1])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    check_node("DepthToSpace", [draw(2, 12, 2, 3)], 13, blocksize=2, mode=mode)


def test_space_to_depth() -> None:
    check_node("SpaceToDepth", [draw(2, 3, 4, 6)], 13, blocksize=2)


@pytest.mark.parametrize(
    "starts, ends, axes, steps",
    [
        ((1,), (3,), None, None),
        ((0, 1), (2, 100), (0, 2), None),
        ((-2,), (BIG,), (1,), None),
        ((-1,), (-BIG,), (1,), (-1,)),
        ((10, -100), (-100, 100), (0, 1), (-2, 2)),
        ((3,), (1,), (1,), None),
        ((0, 0, 0), (4, 5, 6), (0, 1, 2), (1, 2, 3)),
        ((-1, -1), (0, -4), (-1, -2), (-3, -1)),
        ((1,), (4,), (-1,), (2,)),
    ],
)
def test_slice(starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    inputs = [draw(4, 5, 6), ints(*starts), ints(*ends)]
    inputs.append(None if axes is None else ints(*axes))
    inputs.append(None if steps is None else ints(*steps))
    while inputs[-1] is None:
        inputs.pop()
    check_node("Slice", inputs, 13, known=[1, 2, 3, 4])
    if steps is None and axes is not None:
        check_node("Slice", [inputs[0]], 9, starts=starts, ends=ends, axes=axes)


@pytest.mark.parametrize(
    "start, end, step, want",
    [
        (0, BIG, 1, "N"),
        (1, BIG, 1, "N - 1"),
        (0, -1, 1, "N - 1"),
        (-1, BIG, 1, "1"),
        (0, BIG, 2, "(N + 1)//2"),
        (-1, -BIG, -1, "N"),
    ],
)
def test_slice_of_a_symbolic_extent(start: int, end: int, step: int, want: str) -> None:
    inputs = [draw(5, 2), ints(start), ints(end), ints(0), ints(step)]
    imported = check_node("Slice", inputs, 13, known=[1, 2, 3, 4], dims={0: ("N", 2)})
    assert text(imported.graph.results[0].tensor.shape[0]) == want


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    shapes = [[2, 3], [2, 3], [2, 3]]
    for k, shape in enumerate(shapes):
        shape[axis] += k
    check_node("Concat", [draw(*s, seed=k) for k, s in enumerate(shapes)], 13, axis=axis)


def test_concat_leaves_empty_operands_out() -> None:
    imported = check_node("Concat", [draw(2, 3), draw(0, 3)], 13, axis=0)
    assert imported.graph.results[0] is imported.graph.inputs[0]


def test_concat_along_a_symbolic_axis() -> None:
    imported = check_node(
        "Concat", [draw(2, 3), draw(4, 3)], 13, dims={0: ("past", 3), 1: ("fresh", 3)}, axis=0
    )
    want = symbol("past") + symbol("fresh")
    assert imported.graph.results[0].tensor.shape == (want, 3)


@pytest.mark.parametrize("opset", [2, 11, 13])
def test_split_in_equal_parts(opset: int) -> None:
    check_node("Split", [draw(4, 6)], opset, outputs=3, axis=1)


def test_split_by_sizes() -> None:
    check_node("Split", [draw(4, 6), ints(1, 0, 5)], 13, known=[1], outputs=3, axis=-1)
    check_node("Split", [draw(4, 6)], 11, outputs=2, axis=0, split=[1, 3])
    check_node("Split", [draw(7, 2)], 18, outputs=3, axis=0, num_outputs=3)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("pads", [(0, 2, 1, 0), (1, 3, 1, 1), (0, 0, 0, 0), (0, -1, 1, 2)])
def test_pad(mode: str, pads: tuple[int, ...]) -> None:
    x = draw(3, 5)
    check_node("Pad", [x, ints(*pads)], 13, known=[1], mode=mode)
    check_node("Pad", [x], 2, pads=pads, mode=mode)


def test_pad_with_a_value_and_axes() -> None:
    value = np.array(2.5, np.float32)
    check_node("Pad", [draw(3, 5), ints(1, 2), value, ints(-1)], 18, known=[1, 3])
    check_node("Pad", [draw(3, 5), ints(1, 0, 0, 2), value], 13, known=[1])


def test_pad_wraps() -> None:
    check_node("Pad", [draw(3, 5), ints(1, 2, 0, 4)], 19, known=[1], mode="wrap")


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [-1, 0, 2])
def test_trilu(upper: int, diagonal: int) -> None:
    k = np.array(diagonal, np.int64)
    check_node("Trilu", [draw(2, 3, 4), k], 14, known=[1], upper=upper)


def test_eye_like() -> None:
    check_node("EyeLike", [draw(3, 4)], 9, k=1)
    check_node("EyeLike", [draw(3, 4)], 9, k=-1, dtype=7)


@pytest.mark.parametrize("bounds", [(0, 5, 1), (5, 0, -2), (3, 3, 1), (7, 1, 2)])
def test_range_of_integers(bounds: tuple[int, int, int]) -> None:
    imported = check_node("Range", [np.array(b, np.int64) for b in bounds], 11, known=[0, 1, 2])
    assert isinstance(imported.graph.results[0].op, Constant)


def test_range_of_floats() -> None:
    bounds = [np.array(b, np.float32) for b in (0.0, 2.0, 0.3)]
    check_node("Range", bounds, 11, known=[0, 1, 2], tolerance=1e-6)


def test_constant_of_shape() -> None:
    check_node("ConstantOfShape", [ints(2, 3)], 9, known=[0])


def test_reverse_sequence() -> None:
    x = draw(4, 3, 2)
    check_node("ReverseSequence", [x, ints(1, 4, 2)], 10, batch_axis=1, time_axis=0)
    check_node("ReverseSequence", [x, ints(1, 3, 2, 1)], 10, batch_axis=0, time_axis=1)
