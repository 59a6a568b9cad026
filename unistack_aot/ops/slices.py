"""Reindexing ops over parts of axes: slices, splits, concatenation. Not here: padding (pad.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import Type
from unistack_aot.base.errors import ExtentsDiffer, IRError
from unistack_aot.base.symbolic import Dim, bounds, ceildiv, maximum, minimum, text
from unistack_aot.ir.scalar import Scalar, index_value, where
from unistack_aot.mcir.nodes import Param
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Operand, agree, sample
from unistack_aot.ops.reindex import Structural, axis_of, static

TO_THE_END = (1 << 31) - 1  # exporters write INT32_MAX or INT64_MAX for "up to the end"


@dataclass(frozen=True)
class Slice(Structural):
    """Along each axis k: `sizes[k]` elements from `starts[k]`, `steps[k]` (may be < 0) apart."""

    starts: tuple[Dim, ...]
    steps: tuple[int, ...]
    sizes: tuple[Dim, ...]

    samples = (
        sample("f32[5,6]", starts=(1, 4), steps=(1, -2), sizes=(3, 2)),
        sample("i64[7]", starts=(6,), steps=(-1,), sizes=(7,)),
        sample("f16[2,3,4]", starts=(0, 2, 0), steps=(1, 1, 2), sizes=(2, 1, 2)),
    )

    def infer(self, *types: Type) -> Type:
        """The sizes; IRError where an axis is known to be left."""
        (x,) = (tensor(t, self.name) for t in types)
        if not len(self.starts) == len(self.steps) == len(self.sizes) == x.rank:
            raise IRError(f"{len(self.starts)} starts for {x}")
        for extent, start, step, size in zip(
            x.shape, self.starts, self.steps, self.sizes, strict=True
        ):
            if size == 0:
                continue
            ends = (start, start + (size - 1) * step)
            if any(_outside(end, extent) for end in ends):
                raise IRError(f"{text(size)} elements from {text(start)} leave {text(extent)}")
        return x.with_shape(self.sizes)

    def reference(self, *arrays: Array) -> Array:
        """numpy's slicing."""
        starts, sizes = static(self.starts, "start"), static(self.sizes, "size")
        parts: list[slice] = []
        for start, step, size in zip(starts, self.steps, sizes, strict=True):
            stop = start + step * size
            parts.append(slice(start, stop if stop >= 0 else None, step) if size else slice(0, 0))
        return arrays[0][tuple(parts)]

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The element at start + index * step."""
        (x,) = operands
        return x(*(b + i * s for b, i, s in zip(self.starts, index, self.steps, strict=True)))


def _outside(position: Dim, extent: Dim) -> bool:
    low, high = bounds(extent - 1 - position, {})[1], bounds(position, {})[1]
    return (low is not None and low < 0) or (high is not None and high < 0)


@dataclass(frozen=True)
class Concat(Structural):
    """The operands one after another along an axis."""

    axis: int

    samples = (
        sample("f32[2,3]", "f32[2,1]", "f32[2,2]", axis=1),
        sample("i64[2]", "i64[3]", axis=0),
    )

    def infer(self, *types: Type) -> Type:
        """Extents along the axis add up; all others must agree."""
        parts = [tensor(t, self.name) for t in types]
        first = parts[0]
        for part in parts[1:]:
            what = f"{first} and {part} do not concatenate along axis {self.axis}"
            if part.rank != first.rank or part.dtype is not first.dtype:
                raise IRError(what)
            for axis, (a, b) in enumerate(zip(first.shape, part.shape, strict=True)):
                if a != b and axis != self.axis:
                    raise ExtentsDiffer(what, a, b)
        shape = list(first.shape)
        shape[self.axis] = sum((p.shape[self.axis] for p in parts[1:]), start=shape[self.axis])
        return first.with_shape(tuple(shape))

    def reference(self, *arrays: Array) -> Array:
        """numpy.concatenate."""
        return np.concatenate(arrays, self.axis)

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """A chain of choices by the position along the axis."""
        position = index[self.axis]
        offsets: list[Dim] = [0]
        for x in operands[:-1]:
            offsets.append(offsets[-1] + x.shape[self.axis])
        value: Scalar | None = None
        for x, offset in zip(reversed(operands), reversed(offsets), strict=True):
            inner = list(index)
            inner[self.axis] = position - offset
            taken = x(*inner)
            end = index_value(offset + x.shape[self.axis])
            value = taken if value is None else where(index_value(position) < end, taken, value)
        assert value is not None
        return value


def slice_axis(x: Node, axis: int, start: Dim, size: Dim) -> Node:
    """`size` elements along one axis; `x` itself if that is all of it."""
    shape = x.tensor.shape
    if start == 0 and size == shape[axis]:
        return x
    starts = tuple(start if k == axis else 0 for k in range(len(shape)))
    sizes = tuple(size if k == axis else d for k, d in enumerate(shape))
    return Node(Slice(starts, (1,) * len(shape), sizes), (x,))


def concat(parts: Sequence[Node], axis: int) -> Node:
    """The parts along an axis, without those that are known to be empty."""
    full = [part for part in parts if part.tensor.shape[axis] != 0]
    if len(full) > 1:
        return Node(Concat(axis), tuple(full))
    return full[0] if full else parts[0]


@onnx("Concat", since=1)
def import_concat(call: OnnxCall) -> Node:
    """Concat; before opset 4 the axis is 1 unless given."""
    parts = [call.arg(k) for k in range(len(call.args))]
    axis = axis_of(call.attr("axis", 1), parts[0].tensor.rank, call)
    Concat(axis).infer(*(part.type for part in parts))
    return concat(parts, axis)


@onnx("Slice", since=1)
def import_slice_1(call: OnnxCall) -> Node:
    """Slice with attributes."""
    starts, ends = call.attr("starts", ()), call.attr("ends", ())
    return _slice(call, starts, ends, call.attr("axes", range(len(starts))), [1] * len(starts))


@onnx("Slice", since=10)
def import_slice(call: OnnxCall) -> Node:
    """Slice with inputs: starts and ends may be symbolic."""
    starts = call.require_dims(1, "starts")
    ends = call.require_dims(2, "ends")
    axes = call.axes(3)
    steps = call.constant(4)
    if steps is None and call.optional(4) is not None:
        steps = call.require_constant(4, "steps")
    strides = [1] * len(starts) if steps is None else [int(s) for s in steps.reshape(-1)]
    return _slice(call, starts, ends, range(len(starts)) if axes is None else axes, strides)


def _slice(
    call: OnnxCall,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[int],
    strides: Sequence[int],
) -> Node:
    x = call.arg(0)
    if not len(starts) == len(ends) == len(axes) == len(strides):
        raise call.refuse("with starts, ends, axes and steps of different lengths", "fix the model")
    begin: list[Dim] = [0] * x.tensor.rank
    step = [1] * x.tensor.rank
    size = list(x.tensor.shape)
    for start, end, given, stride in zip(starts, ends, axes, strides, strict=True):
        axis = axis_of(int(given), x.tensor.rank, call)
        if stride == 0:
            raise call.refuse("with step 0", "the model is malformed")
        extent = x.tensor.shape[axis]
        first, last = (0, extent) if stride > 0 else (-1, extent - 1)
        low = _clamped(call, start, extent, max(first, 0), last)
        high = _clamped(call, end, extent, first, last)
        gap = high - low if stride > 0 else low - high
        begin[axis], step[axis] = low, stride
        size[axis] = call.simple(maximum(0, ceildiv(gap, abs(stride))))
    if all(s == 1 for s in step) and tuple(size) == x.tensor.shape:
        return x
    begin = [0 if s == 0 else b for s, b in zip(size, begin, strict=True)]
    return Node(Slice(tuple(begin), tuple(step), tuple(size)), (x,))


def _clamped(call: OnnxCall, value: Dim, extent: Dim, low: Dim, high: Dim) -> Dim:
    """ONNX's rule: negative counts from the end, then limited to [low, high]."""
    if isinstance(value, int) and value >= TO_THE_END:
        return high
    if isinstance(value, int) and value <= -TO_THE_END:
        return low
    least, most = bounds(value, call.ranges)
    if most is not None and most < 0:
        value = value + extent
    elif least is None or least < 0:
        raise call.refuse(
            f"from or to {text(value)}, whose sign depends on the shape",
            "fix the dimension or bound it, so that the sign is known",
        )
    return call.simple(maximum(low, minimum(value, high)))


@onnx("Split", since=1)
def import_split(call: OnnxCall) -> list[Node]:
    """Split into slices: sizes as attribute or input, or equal parts (the last may be smaller)."""
    x = call.arg(0)
    axis = axis_of(call.attr("axis", 0), x.tensor.rank, call)
    extent = x.tensor.shape[axis]
    sizes = _split_sizes(call, extent)
    found: list[Node] = []
    start: Dim = 0
    for size in sizes:
        found.append(slice_axis(x, axis, start, size))
        start = start + size
    agree((start,), (extent,), f"a split into {text(start)} of {text(extent)} elements")
    return found


def _split_sizes(call: OnnxCall, extent: Dim) -> tuple[Dim, ...]:
    if "split" in call.attributes:
        return tuple(int(s) for s in call.attributes["split"])
    if call.optional(1) is not None:
        return call.require_dims(1, "split sizes")
    parts = call.attr("num_outputs", call.outputs)
    if "num_outputs" not in call.attributes:
        chunk = call.simple(extent // parts)
        return (chunk,) * parts
    chunk = ceildiv(extent, parts)
    return (*((chunk,) * (parts - 1)), call.simple(extent - chunk * (parts - 1)))
