"""Padding: constant, reflected, edge and wrapped borders. Not here: windows over padded data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import Type
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, bounds, maximum, minimum, text
from unistack_aot.ir.scalar import Scalar, all_of, index_value, where
from unistack_aot.mcir.nodes import Param
from unistack_aot.ops.core import constant
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Operand, sample
from unistack_aot.ops.reindex import Structural, axis_of, static
from unistack_aot.ops.slices import Slice

MODES = ("constant", "reflect", "edge", "wrap")


@dataclass(frozen=True)
class Pad(Structural):
    """`before[k]` and `after[k]` more elements around each axis; all counts are >= 0.

    Mode "constant" takes the fill value as a second, scalar operand; "reflect" mirrors without
    repeating the border element, "edge" repeats it, "wrap" continues from the other side.
    """

    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    mode: str = "constant"

    samples = (
        sample("f32[2,3]", "f32[]", before=(1, 0), after=(0, 2)),
        sample("f32[2,4]", before=(0, 3), after=(0, 2), mode="reflect"),
        sample("i64[3]", before=(2,), after=(1,), mode="edge"),
        sample("f32[3]", before=(2,), after=(4,), mode="wrap"),
    )

    def infer(self, *types: Type) -> Type:
        """Extents grow by the counts."""
        x, *fill = (tensor(t, self.name) for t in types)
        if not len(self.before) == len(self.after) == x.rank:
            raise IRError(f"{len(self.before)} pads for {x}")
        if len(fill) != (self.mode == "constant") or any(
            f.dtype is not x.dtype or f.rank for f in fill
        ):
            raise IRError(f"pad in mode {self.mode} of {x} with {len(fill)} fill values")
        for extent, before, after in zip(x.shape, self.before, self.after, strict=True):
            widest = maximum(before, after)
            low = bounds(widest - extent, {})[0]
            if self.mode == "reflect" and widest != 0 and low is not None and low >= 0:
                raise IRError(f"reflecting {text(widest)} elements of {text(extent)}")
        padded = zip(self.before, x.shape, self.after, strict=True)
        return x.with_shape(tuple(b + d + a for b, d, a in padded))

    def reference(self, *arrays: Array) -> Array:
        """numpy.pad."""
        counts = list(zip(static(self.before, "pad"), static(self.after, "pad"), strict=True))
        if self.mode == "constant":
            return np.pad(arrays[0], counts, constant_values=arrays[1].reshape(-1)[0])
        if self.mode == "reflect":
            return np.pad(arrays[0], counts, mode="reflect")
        return np.pad(arrays[0], counts, mode="edge" if self.mode == "edge" else "wrap")

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The element inside, the fill value or a folded index outside."""
        x = operands[0]
        inner = [i - b for i, b in zip(index, self.before, strict=True)]
        padded = [b != 0 or a != 0 for b, a in zip(self.before, self.after, strict=True)]
        if self.mode != "constant":
            parts = zip(inner, x.shape, padded, strict=True)
            return x(*(_folded(self.mode, i, d) if p else i for i, d, p in parts))
        conditions: list[Scalar] = []
        for i, extent, before, after in zip(inner, x.shape, self.before, self.after, strict=True):
            if before != 0:
                conditions.append(index_value(i) >= 0)
            if after != 0:
                conditions.append(index_value(i) < index_value(extent))
        value = x(*inner)
        return where(all_of(*conditions), value, operands[1]()) if conditions else value


def _folded(mode: str, i: Dim, extent: Dim) -> Dim:
    """The position inside [0, extent) that a position outside stands for."""
    last = extent - 1
    if mode == "edge":
        return maximum(0, minimum(i, last))
    if mode == "wrap":
        return i % extent
    front = maximum(i, -i)
    return last - maximum(last - front, front - last)


def pad(x: Node, before: Sequence[Dim], after: Sequence[Dim], value: Node) -> Node:
    """`x` with a constant border; `x` itself without one."""
    if all(b == 0 for b in (*before, *after)):
        return x
    return Node(Pad(tuple(before), tuple(after)), (x, value))


@onnx("Pad", since=1)
def import_pad_1(call: OnnxCall) -> Node:
    """Pad with attributes (called paddings in opset 1)."""
    pads = call.attributes.get("pads", call.attributes.get("paddings", ()))
    value = constant(call.attr("value", 0.0), call.arg(0))
    return _pad(call, [int(p) for p in pads], range(call.arg(0).tensor.rank), value)


@onnx("Pad", since=11)
def import_pad(call: OnnxCall) -> Node:
    """Pad with inputs: pads (may be symbolic), fill value, and axes since opset 18."""
    x = call.arg(0)
    axes = call.axes(3)
    given = call.optional(2)
    value = constant(0, x) if given is None else given
    if value.tensor.rank:
        raise call.refuse("with a fill value that is not a scalar", "export with a scalar")
    pads = call.require_dims(1, "pads")
    return _pad(call, pads, range(x.tensor.rank) if axes is None else axes, value)


def _pad(call: OnnxCall, pads: Sequence[Dim], axes: Sequence[int], value: Node) -> Node:
    """Negative counts cut first; the rest is padded."""
    x = call.arg(0)
    mode = call.attr("mode", "constant")
    if mode not in MODES:
        raise call.refuse(f"with mode {mode}", f"use one of {', '.join(MODES)}")
    if len(pads) != 2 * len(axes):
        raise call.refuse(f"with {len(pads)} pads for {len(axes)} axes", "fix the model")
    sides: list[list[Dim]] = [[0] * x.tensor.rank, [0] * x.tensor.rank]
    for k, count in enumerate(pads):
        axis = axis_of(int(axes[k % len(axes)]), x.tensor.rank, call)
        sides[k // len(axes)][axis] = call.simple(count)
    before, after = ([maximum(0, p) for p in side] for side in sides)
    cuts = [[call.simple(maximum(0, -p)) for p in side] for side in sides]
    if any(c != 0 for side in cuts for c in side):
        sizes = tuple(d - b - a for d, b, a in zip(x.tensor.shape, *cuts, strict=True))
        x = Node(Slice(tuple(cuts[0]), (1,) * len(sizes), sizes), (x,))
    before, after = (tuple(call.simple(p) for p in side) for side in (before, after))
    if mode == "constant":
        return pad(x, before, after, value)
    for extent, ahead, behind in zip(x.tensor.shape, before, after, strict=True):
        inner = 1 if mode == "reflect" else 0
        widest = call.simple(maximum(ahead, behind))
        if widest != 0:
            call.at_least(extent, widest + inner if inner else 1, f"continues it by {mode}")
    if all(p == 0 for p in (*before, *after)):
        return x
    return Node(Pad(before, after, mode), (x,))
