"""Gather and one-hot: indices that are data. Not here: writing at such indices (scatter.py).

Negative indices count from the end. ONNX makes an index out of range an error; a kernel cannot
raise and must not touch other memory: reading there gives 0, and an update there is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.dtypes import i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim
from unistack_aot.ir.formula import equal
from unistack_aot.ir.scalar import IndexEntry, Scalar, all_of, cast, index_value, literal, where
from unistack_aot.mcir.nodes import Param
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import MapOp, Operand, agree, sample
from unistack_aot.ops.reindex import axis_of, reshape
from unistack_aot.ops.slices import Slice


def wrapped(index: Scalar, extent: Dim) -> Scalar:
    """A possibly negative index as a position."""
    position = cast(i64, index)
    return where(position < 0, position + index_value(extent), position)


def inside(position: Scalar, extent: Dim) -> Scalar:
    """Whether a position is in [0, extent)."""
    return all_of(literal(0, i64) <= position, position < index_value(extent))


def wrap_array(index: Array, extent: int) -> tuple[Array, Array]:
    """Positions limited to the extent, and where they needed no limit."""
    position = index.astype(np.int64)
    position = np.where(position < 0, position + extent, position)
    valid = (position >= 0) & (position < extent)
    return np.where(valid, position, 0), valid


def _check_index(kind: TensorType) -> None:
    if not kind.dtype.is_int:
        raise IRError(f"{kind} as an index")


@dataclass(frozen=True)
class Gather(MapOp):
    """Slices of the data along `axis` in the order of an index tensor, whose axes replace it."""

    axis: int

    family = "gather"
    samples = (
        sample("f32[5,3]", "i64[2,2]", fill=("normal", "index:5"), axis=0),
        sample("f32[2,4,3]", "i32[3]", fill=("normal", "index:4"), axis=1),
        sample("f16[4,2]", "i64[]", fill=("normal", "index:2"), axis=1),
    )

    def infer(self, *types: Type) -> Type:
        """The axis is replaced by the index's axes."""
        x, index = (tensor(t, self.name) for t in types)
        _check_index(index)
        return x.with_shape(x.shape[: self.axis] + index.shape + x.shape[self.axis + 1 :])

    def reference(self, *arrays: Array) -> Array:
        """numpy.take, with 0 out of range."""
        x, index = arrays
        position, valid = wrap_array(index, x.shape[self.axis])
        if x.shape[self.axis] == 0:
            return np.zeros(x.shape[: self.axis] + index.shape + x.shape[self.axis + 1 :], x.dtype)
        taken = np.take(x, position, self.axis)
        valid = valid.reshape(valid.shape + (1,) * (x.ndim - 1 - self.axis))
        return np.where(valid, taken, np.zeros((), x.dtype))

    def symbolic(self, *values: Array) -> Array | None:
        """Selected dimensions, for indices without symbols that are in range."""
        x, index = values
        extent = x.shape[self.axis]
        if not all(isinstance(i, int) and -extent <= i < extent for i in index.flat):
            return None
        return np.asarray(np.take(x, index.astype(np.int64), self.axis), dtype=object)

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The element at the wrapped index; 0 out of range."""
        x, selector = operands
        stop = self.axis + len(selector.shape)
        position = wrapped(selector(*index[self.axis : stop]), x.shape[self.axis])
        value = x(*index[: self.axis], position, *index[stop:])
        return where(inside(position, x.shape[self.axis]), value, literal(0, x.dtype))


@dataclass(frozen=True)
class GatherElements(MapOp):
    """result[..., i, ...] = data[..., index[..., i, ...], ...] along `axis`."""

    axis: int

    family = "gather"
    samples = (
        sample("f32[3,4]", "i64[2,4]", fill=("normal", "index:3"), axis=0),
        sample("i64[3,4]", "i32[3,2]", fill=("small", "index:4"), axis=1),
    )

    def infer(self, *types: Type) -> Type:
        """The index's shape in the data's dtype."""
        x, index = (tensor(t, self.name) for t in types)
        _check_index(index)
        if x.rank != index.rank:
            raise IRError(f"{index} as an index of {x}: ranks differ")
        return x.with_shape(index.shape)

    def reference(self, *arrays: Array) -> Array:
        """numpy.take_along_axis, with 0 out of range."""
        x, index = arrays
        position, valid = wrap_array(index, x.shape[self.axis])
        kept = tuple(
            slice(None) if k == self.axis else slice(0, d) for k, d in enumerate(index.shape)
        )
        return np.where(
            valid, np.take_along_axis(x[kept], position, self.axis), np.zeros((), x.dtype)
        )

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The element at the wrapped index; 0 out of range."""
        x, selector = operands
        position = wrapped(selector(*index), x.shape[self.axis])
        value = x(*index[: self.axis], position, *index[self.axis + 1 :])
        return where(inside(position, x.shape[self.axis]), value, literal(0, x.dtype))


@dataclass(frozen=True)
class GatherNd(MapOp):
    """Slices of the data at index tuples (the index's last axis), after `batch` shared axes."""

    batch: int = 0

    family = "gather"
    samples = (
        sample("f32[3,4,2]", "i64[5,2]", fill=("normal", "index:3")),
        sample("f32[2,3,4]", "i64[2,1]", fill=("normal", "index:3"), batch=1),
    )

    def infer(self, *types: Type) -> Type:
        """Index axes but the last, then the data axes that are not indexed."""
        x, index = (tensor(t, self.name) for t in types)
        _check_index(index)
        width = index.shape[-1] if index.rank else 0
        if not isinstance(width, int) or not 0 < width <= x.rank - self.batch:
            raise IRError(f"index tuples of {index} into {x} after {self.batch} batch axes")
        what = f"the {self.batch} batch axes of {index} and {x} differ"
        agree(index.shape[: self.batch], x.shape[: self.batch], what)
        return x.with_shape(index.shape[:-1] + x.shape[self.batch + width :])

    def reference(self, *arrays: Array) -> Array:
        """Advanced indexing, with 0 out of range."""
        x, index = arrays
        lead = np.indices(index.shape[:-1])
        entries: list[Array] = [lead[k] for k in range(self.batch)]
        valid = np.ones(index.shape[:-1], bool)
        for k in range(index.shape[-1]):
            position, good = wrap_array(index[..., k], x.shape[self.batch + k])
            entries.append(position)
            valid &= good
        taken = x[tuple(entries)]
        return np.where(
            valid.reshape(valid.shape + (1,) * (taken.ndim - valid.ndim)),
            taken,
            np.zeros((), x.dtype),
        )

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The element at the wrapped tuple; 0 out of range."""
        x, selector = operands
        outer = len(selector.shape) - 1
        entries, valid = tuple_at(selector, index[:outer], x.shape, self.batch)
        value = x(*index[: self.batch], *entries, *index[outer:])
        return where(valid, value, literal(0, x.dtype))


def tuple_at(
    selector: Operand, at: Sequence[IndexEntry], shape: tuple[Dim, ...], batch: int
) -> tuple[list[Scalar], Scalar]:
    """The index tuple stored at `at`, wrapped, and whether it is inside the data."""
    width = selector.shape[-1]
    if not isinstance(width, int):
        raise IRError("index tuples of symbolic width")
    entries = [wrapped(selector(*at, k), shape[batch + k]) for k in range(width)]
    return entries, all_of(*(inside(e, shape[batch + k]) for k, e in enumerate(entries)))


@dataclass(frozen=True)
class OneHot(MapOp):
    """values[1] where the position along the new `axis` is the (wrapped) index, else values[0]."""

    depth: Dim
    axis: int

    family = "gather"
    samples = (
        sample("i64[3]", "f32[2]", fill=("index:5", "normal"), depth=5, axis=1),
        sample("i32[2,3]", "i64[2]", fill=("index:4", "small"), depth=4, axis=0),
    )

    def infer(self, *types: Type) -> Type:
        """The index's shape with the new axis, in the values' dtype."""
        index, values = (tensor(t, self.name) for t in types)
        if values.shape != (2,):
            raise IRError(f"one-hot values {values} are not a pair")
        shape = (*index.shape[: self.axis], self.depth, *index.shape[self.axis :])
        return TensorType(values.dtype, shape)

    def reference(self, *arrays: Array) -> Array:
        """A comparison with positions."""
        index, values = arrays
        if not isinstance(self.depth, int):
            raise IRError("a symbolic depth has no value before shapes bind")
        place = index.astype(np.int64)
        place = np.expand_dims(np.where(place < 0, place + self.depth, place), self.axis)
        positions = np.arange(self.depth).reshape((self.depth,) + (1,) * (index.ndim - self.axis))
        return np.where(place == positions, values[1], values[0])

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """A comparison with the position."""
        selector, values = operands
        rest = index[: self.axis] + index[self.axis + 1 :]
        hot = equal(wrapped(selector(*rest), self.depth), index_value(index[self.axis]))
        return where(hot, values(1), values(0))


@onnx("Gather", since=1)
def import_gather(call: OnnxCall) -> Node:
    """Gather; a constant index in arithmetic progression is a slice."""
    x, index = call.arg(0), call.arg(1)
    axis = axis_of(call.attr("axis", 0), x.tensor.rank, call)
    extent = x.tensor.shape[axis]
    known = call.constant(1)
    if known is not None and known.size and not isinstance(extent, int):
        call.at_least(extent, max(int(known.max()) + 1, -int(known.min())), "reads that far")
    if known is not None and isinstance(extent, int):
        if any(not -extent <= int(i) < extent for i in known.flat):
            raise call.refuse(f"of {x.tensor} with an index out of range", "fix the indices")
        sliced = _as_slice(x, axis, [int(i) % extent for i in known.flat])
        if sliced is not None:
            shape = x.tensor.shape
            return reshape(sliced, (*shape[:axis], *known.shape, *shape[axis + 1 :]))
    return Node(Gather(axis), (x, index))


def _as_slice(x: Node, axis: int, places: list[int]) -> Node | None:
    """A slice with these positions along `axis`; None if they are not evenly spaced."""
    if not places:
        return None
    step = places[1] - places[0] if len(places) > 1 else 1
    if step == 0 or any(b - a != step for a, b in pairwise(places)):
        return None
    rank = x.tensor.rank
    starts = tuple(places[0] if k == axis else 0 for k in range(rank))
    steps = tuple(step if k == axis else 1 for k in range(rank))
    sizes = tuple(len(places) if k == axis else d for k, d in enumerate(x.tensor.shape))
    return x if sizes == x.tensor.shape and step == 1 else Node(Slice(starts, steps, sizes), (x,))


@onnx("GatherElements", since=11)
def import_gather_elements(call: OnnxCall) -> Node:
    """GatherElements."""
    x = call.arg(0)
    axis = axis_of(call.attr("axis", 0), x.tensor.rank, call)
    within(call, x, call.arg(1), axis)
    return Node(GatherElements(axis), (x, call.arg(1)))


def within(call: OnnxCall, x: Node, index: Node, axis: int) -> None:
    """Demand that an index reaches nowhere beyond `x` but along `axis`, where its values count."""
    for k, (extent, reach) in enumerate(zip(x.tensor.shape, index.tensor.shape, strict=False)):
        if k != axis:
            call.at_least(extent, reach, f"reaches that far along axis {k}")


@onnx("GatherND", since=11)
def import_gather_nd(call: OnnxCall) -> Node:
    """GatherND."""
    return Node(GatherNd(int(call.attr("batch_dims", 0))), (call.arg(0), call.arg(1)))


@onnx("OneHot", since=9)
def import_one_hot(call: OnnxCall) -> Node:
    """OneHot with a known depth."""
    index = call.arg(0)
    axis = axis_of(call.attr("axis", -1), index.tensor.rank + 1, call)
    known = call.constant(1)
    depth: Dim = call.require_dims(1, "depth")[0] if known is None else int(known.reshape(-1)[0])
    return Node(OneHot(depth, axis), (index, call.arg(2)))
