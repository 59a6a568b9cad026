"""Ops whose elements depend on their position: ranges, identities, triangles, reversed prefixes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.dtypes import DType, f32, i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, ceildiv, maximum
from unistack_aot.ir.formula import equal
from unistack_aot.ir.scalar import Scalar, cast, index_value, literal, where
from unistack_aot.mcir.nodes import Param
from unistack_aot.ops.convert import element_type
from unistack_aot.ops.core import constant
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import MapOp, Operand, sample
from unistack_aot.ops.reindex import axis_of, expand, static


@dataclass(frozen=True)
class Progression(MapOp):
    """start, start + step, start + 2 step, ... (`count` numbers of dtype `to`)."""

    start: Dim
    step: int
    count: Dim
    to: DType = i64

    family = "reindex"
    samples = (sample(start=3, step=-2, count=5), sample(start=0, step=1, count=4, to=f32))

    def infer(self, *types: Type) -> Type:
        """A vector."""
        return TensorType(self.to, (self.count,))

    def reference(self, *arrays: Array) -> Array:
        """numpy.arange."""
        start, count = static((self.start, self.count), "range")
        return (start + self.step * np.arange(count)).astype(self.to.numpy)

    def symbolic(self, *values: Array) -> Array | None:
        """The numbers, where the count is known."""
        if not isinstance(self.count, int):
            return None
        numbers: list[Dim] = [self.start + self.step * k for k in range(self.count)]
        found = np.empty(len(numbers), dtype=object)
        found[:] = numbers
        return found

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """start + i * step."""
        return cast(self.to, index_value(self.start + index[0] * self.step))


@dataclass(frozen=True)
class Eye(MapOp):
    """Ones where column = row + `diagonal`, zeros elsewhere."""

    rows: Dim
    columns: Dim
    diagonal: int
    to: DType = f32

    family = "reindex"
    samples = (sample(rows=3, columns=4, diagonal=1), sample(rows=2, columns=2, diagonal=0, to=i64))

    def infer(self, *types: Type) -> Type:
        """A matrix."""
        return TensorType(self.to, (self.rows, self.columns))

    def reference(self, *arrays: Array) -> Array:
        """numpy.eye."""
        rows, columns = static((self.rows, self.columns), "shape")
        return np.eye(rows, columns, self.diagonal).astype(self.to.numpy)

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """A choice by position."""
        on = equal(index_value(index[1] - index[0]), self.diagonal)
        return where(on, literal(1, self.to), literal(0, self.to))


@dataclass(frozen=True)
class Trilu(MapOp):
    """The upper or lower triangle (with the diagonal) of the last two axes, zeros elsewhere."""

    upper: bool
    diagonal: int

    family = "reindex"
    samples = (
        sample("f32[2,3,4]", upper=True, diagonal=1),
        sample("i64[3,3]", upper=False, diagonal=0),
    )

    def infer(self, *types: Type) -> Type:
        """The operand's type."""
        (x,) = (tensor(t, self.name) for t in types)
        if x.rank < 2:
            raise IRError(f"a triangle of {x}")
        return x

    def reference(self, *arrays: Array) -> Array:
        """numpy.triu or tril."""
        rows, columns = arrays[0].shape[-2:]
        distance = np.arange(columns)[None, :] - np.arange(rows)[:, None] - self.diagonal
        kept = distance >= 0 if self.upper else distance <= 0
        return np.where(kept, arrays[0], np.zeros((), arrays[0].dtype))

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """A choice by position."""
        (x,) = operands
        distance = index_value(index[-1] - index[-2])
        kept = distance >= self.diagonal if self.upper else distance <= self.diagonal
        return where(kept, x(*index), literal(0, x.dtype))


@dataclass(frozen=True)
class ReverseSequence(MapOp):
    """Per batch element, the first lengths[b] time steps reversed; operands: data, lengths."""

    time: int
    batch: int

    family = "reindex"
    samples = (sample("f32[4,2,3]", "i64[2]", fill=("normal", "index:4"), time=0, batch=1),)

    def infer(self, *types: Type) -> Type:
        """The data's type."""
        x, lengths = (tensor(t, self.name) for t in types)
        if lengths.shape != (x.shape[self.batch],) or self.time == self.batch:
            raise IRError(f"lengths {lengths} of {x}")
        return x

    def reference(self, *arrays: Array) -> Array:
        """A copy with reversed prefixes."""
        x = np.moveaxis(arrays[0], (self.batch, self.time), (0, 1))
        result = x.copy()
        for row, length in enumerate(arrays[1].tolist()):
            count = min(max(length, 0), x.shape[1])
            result[row, :count] = x[row, :count][::-1]
        return np.moveaxis(result, (0, 1), (self.batch, self.time))

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The element at length - 1 - t inside the prefix, at t behind it."""
        x, lengths = operands
        length = cast(i64, lengths(index[self.batch]))
        at = index_value(index[self.time])
        # a length above the extent would reverse from outside; it counts as the extent
        end = where(
            length <= index_value(x.shape[self.time]), length, index_value(x.shape[self.time])
        )
        entries: list[Dim | Scalar] = list(index)
        entries[self.time] = where(at < end, end - 1 - at, at)
        return x(*entries)


@onnx("Range", since=11)
def import_range(call: OnnxCall) -> Node:
    """Range over known bounds; integer bounds may be symbolic."""
    like = call.arg(0).tensor.dtype
    if like.is_float:
        start, limit, delta = (
            float(call.require_constant(k, "bound").reshape(())) for k in range(3)
        )
        count = max(0, ceil((limit - start) / delta))
        return constant(start + delta * np.arange(count), call.arg(0))
    first, last, step = (call.require_dims(k, "bound")[0] for k in range(3))
    if not isinstance(step, int) or step == 0:
        raise call.refuse("with a delta that depends on the shape", "export with a constant delta")
    gap = last - first if step > 0 else first - last
    size = call.simple(maximum(0, ceildiv(gap, abs(step))))
    return Node(Progression(first, step, size, like))


@onnx("ConstantOfShape", since=9)
def import_constant_of_shape(call: OnnxCall) -> Node:
    """One value (f32 zero by default) everywhere."""
    value = np.asarray(call.attr("value", np.zeros(1, np.float32))).reshape(())
    shape = tuple(call.simple(d) for d in call.require_dims(0, "shape"))
    return expand(constant(value), shape)


@onnx("EyeLike", since=9)
def import_eye_like(call: OnnxCall) -> Node:
    """An identity matrix of the operand's shape."""
    x = call.arg(0).tensor
    if x.rank != 2:
        raise call.refuse(f"of {x}", "the operator takes a matrix")
    to = element_type(call, "dtype", 0) if "dtype" in call.attributes else x.dtype
    return Node(Eye(x.shape[0], x.shape[1], int(call.attr("k", 0)), to))


@onnx("Trilu", since=14)
def import_trilu(call: OnnxCall) -> Node:
    """A triangle; the diagonal is a constant."""
    diagonal = 0
    if call.optional(1) is not None:
        diagonal = int(call.require_constant(1, "diagonal").reshape(()))
    return Node(Trilu(bool(call.attr("upper", 1)), diagonal), (call.arg(0),))


@onnx("ReverseSequence", since=10)
def import_reverse_sequence(call: OnnxCall) -> Node:
    """Reversed prefixes along the time axis."""
    x = call.arg(0)
    time = axis_of(call.attr("time_axis", 0), x.tensor.rank, call)
    batch = axis_of(call.attr("batch_axis", 1), x.tensor.rank, call)
    return Node(ReverseSequence(time, batch), (x, call.arg(1)))
