"""Carried state along an axis: running sums. Not here: recurrent layers, Loop and Scan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import Type
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, symbol
from unistack_aot.ir.formula import equal
from unistack_aot.ir.scalar import Load, cast, index_value, literal, where
from unistack_aot.mcir.monoids import accumulator
from unistack_aot.mcir.nodes import Kernel, Loop, Param, Role, Stmt, Store
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import TensorOp, axes_of, sample
from unistack_aot.ops.reindex import axis_of


@dataclass(frozen=True)
class CumSum(TensorOp):
    """Running sums along an axis; `exclusive` leaves the element itself out."""

    axis: int
    exclusive: bool = False
    reverse: bool = False

    family = "scan"
    samples = (
        sample("f32[2,5]", axis=1),
        sample("i64[5]", axis=0, exclusive=True),
        sample("f32[3,2]", axis=0, reverse=True),
        sample("f64[2,4]", axis=1, exclusive=True, reverse=True),
    )

    def infer(self, *types: Type) -> Type:
        """The operand's type."""
        (x,) = (tensor(t, self.name) for t in types)
        if not 0 <= self.axis < x.rank or x.dtype.is_bool:
            raise IRError(f"running sums of {x} along axis {self.axis}")
        return x

    def reference(self, *arrays: Array) -> Array:
        """numpy.cumsum, shifted by one if exclusive."""
        x = np.flip(arrays[0], self.axis) if self.reverse else arrays[0]
        total = np.cumsum(x, self.axis, dtype=x.dtype)
        if self.exclusive:
            total = np.roll(total, 1, self.axis)
            total[(slice(None),) * self.axis + (slice(0, 1),)] = 0
        return np.flip(total, self.axis) if self.reverse else total

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """In order along the axis: each sum from the one before it."""
        (x,), (result,) = args, results
        index, step = axes_of(x.shape), symbol("s0")
        extent = x.shape[self.axis]

        def at(position: Dim) -> tuple[Dim, ...]:
            place = extent - 1 - position if self.reverse else position
            return (*index[: self.axis], place, *index[self.axis + 1 :])

        wide = accumulator(x.dtype)
        added = at(step - 1) if self.exclusive else at(step)
        term = cast(wide, Load(x.name, added, x.dtype))
        before = cast(wide, Load(result.name, at(step - 1), x.dtype))
        start = literal(0, wide) if self.exclusive else term
        value = where(equal(index_value(step), 0), start, before + term)
        body: tuple[Stmt, ...] = (Store(result.name, at(step), cast(x.dtype, value)),)
        body = (Loop("s0", extent, body, Role.SEQ),)
        for axis in reversed(range(len(x.shape))):
            if axis != self.axis:
                body = (Loop(str(index[axis]), x.shape[axis], body),)
        return Kernel((*args, *results), body)


@onnx("CumSum", since=11)
def import_cum_sum(call: OnnxCall) -> Node:
    """CumSum along a constant axis."""
    x = call.arg(0)
    axis = axis_of(int(call.require_constant(1, "axis").reshape(-1)[0]), x.tensor.rank, call)
    op = CumSum(axis, bool(call.attr("exclusive", 0)), bool(call.attr("reverse", 0)))
    return Node(op, (x,))
