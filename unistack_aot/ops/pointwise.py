"""Pointwise ops: arithmetic of one scalar formula each. Not here: activations with shape (softmax is a fold)."""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.aicf.node import Node
from unistack_aot.base.dtypes import DType, parse_dtype
from unistack_aot.ir.formula import clamp, maximum, relu
from unistack_aot.ir.scalar import Scalar, cast
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Pointwise, sample


@onnx("Add", since=7)
@dataclass(frozen=True)
class Add(Pointwise):
    """x + y."""

    samples = ("f32[2,3], f32[3]", "i64[4], i64[]", "f16[2,3], f16[2,3]")

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        """x + y."""
        return x + y


@onnx("Mul", since=7)
@dataclass(frozen=True)
class Mul(Pointwise):
    """x * y."""

    samples = ("f32[2,3], f32[2,1]", "i32[4], i32[4]")

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        """x * y."""
        return x * y


@onnx("Relu")
@dataclass(frozen=True)
class Relu(Pointwise):
    """max(x, 0)."""

    samples = ("f32[7]", "f16[2,3]")

    def scalar(self, x: Scalar) -> Scalar:
        """max(x, 0)."""
        return relu(x)


@onnx("HardSwish", since=14)
@dataclass(frozen=True)
class HardSwish(Pointwise):
    """x scaled by a clipped ramp."""

    samples = ("f32[7]", "f16[2,3]")

    def scalar(self, x: Scalar) -> Scalar:
        """x * clamp(x / 6 + 0.5, 0, 1)."""
        return x * clamp(x / 6 + 0.5, 0, 1)


@dataclass(frozen=True)
class Convert(Pointwise):
    """x in another element type (ONNX Cast)."""

    to: DType

    samples = (sample("f32[5]", to=parse_dtype("i64")), sample("i64[5]", to=parse_dtype("f16")))

    def scalar(self, x: Scalar) -> Scalar:
        """x converted."""
        return cast(self.to, x)


@onnx("Max", since=8)
def import_max(call: OnnxCall) -> Node:
    """Max of any number of operands, pairwise."""
    result = call.arg(0)
    for k in range(1, len(call.args)):
        result = Node(Maximum(), (result, call.arg(k)))
    return result


@dataclass(frozen=True)
class Maximum(Pointwise):
    """The larger of x and y; NaN if either is."""

    samples = ("f32[2,3], f32[3]",)

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        """max(x, y)."""
        return maximum(x, y)

