"""Quantisation: affine maps between floats and integers, integer products. Not here: rewrites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.base.dtypes import DType, f32, i16, i32, u8
from unistack_aot.ir.formula import clamp, round_even
from unistack_aot.ir.scalar import Scalar, cast
from unistack_aot.ops.contract import matmul
from unistack_aot.ops.convert import converted, element_type
from unistack_aot.ops.convolve import Convolve, kernel_of, per_channel, with_bias
from unistack_aot.ops.core import constant
from unistack_aot.ops.fold import reduced
from unistack_aot.ops.known import known_value
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Pointwise, sample
from unistack_aot.ops.pointwise import Add, Div, Maximum, Minimum, Mul, Sub
from unistack_aot.ops.reindex import axis_of, reshape
from unistack_aot.ops.window import onnx_window


@dataclass(frozen=True)
class Quantize(Pointwise):
    """saturate(round_half_even(x / scale) + zero) in the integer type `to`; NaN is undefined."""

    to: DType

    samples = (
        sample("f32[2,9], f32[], u8[]", to=u8, fill=("normal", "positive", "count")),
        sample("f32[9], f32[], u8[]", to=u8, fill=("halves", "one", "count")),
        sample("f32[2,3], f32[2,1], i16[2,1]", to=i16, fill=("normal", "positive", "count")),
    )

    def scalar(self, x: Scalar, scale: Scalar, zero: Scalar) -> Scalar:
        """cast(clamp(round(x / scale) + zero, lowest, highest))."""
        place = round_even(cast(f32, x) / cast(f32, scale)) + cast(f32, zero)
        return cast(self.to, clamp(place, self.to.lowest, self.to.highest))


@dataclass(frozen=True)
class Dequantize(Pointwise):
    """(x - zero_point) * scale in the dtype of the scale."""

    samples = (
        sample("u8[2,9], f32[], u8[]", fill=("full", "positive", "count")),
        sample("i8[2,3], f32[2,1], i8[2,1]", fill=("full", "positive", "small")),
        sample("i32[4], f32[], i32[]", fill=("small", "positive", "zeros")),
        sample("i8[4], f16[], i8[]", fill=("full", "positive", "small")),
    )

    def scalar(self, x: Scalar, scale: Scalar, zero: Scalar) -> Scalar:
        """cast(x - zero) * scale: the difference is exact in i32."""
        return cast(scale.dtype, cast(i32, x) - cast(i32, zero)) * scale


def quantized(x: Node, scale: Node, zero: Node | None, to: DType) -> Node:
    """`x` quantised to `to`; no zero point means 0."""
    if zero is None:
        zero = constant(np.zeros((), to.numpy))
    return Node(Quantize(to), (x, scale, zero))


def dequantized(x: Node, scale: Node, zero: Node | None) -> Node:
    """`x` as floats; no zero point means 0."""
    if zero is None:
        zero = constant(0, x)
    return Node(Dequantize(), (x, scale, zero))


def _along(call: OnnxCall, vector: Node | None, x: Node) -> Node | None:
    """A per-tensor or per-axis parameter shaped to broadcast over `x`."""
    if vector is None or vector.tensor.rank == 0 or vector.tensor.shape == (1,):
        call.ignore("axis", "block_size")
        return None if vector is None else reshape(vector, ())
    if call.attr("block_size", 0) or vector.tensor.rank > 1:
        raise call.refuse("with blocked scales", "quantise per tensor or per axis")
    axis = axis_of(call.attr("axis", 1), x.tensor.rank, call)
    rest = x.tensor.rank - axis - 1
    return reshape(vector, (vector.tensor.shape[0], *((1,) * rest)))


@onnx("QuantizeLinear", since=10)
def import_quantize_linear(call: OnnxCall) -> Node:
    """Floats (or i32) to integers, per tensor or per axis."""
    x, scale, zero = call.arg(0), call.arg(1), call.optional(2)
    call.ignore("saturate")  # of 8-bit floats
    to = element_type(call, "output_dtype", 2) if call.attr("output_dtype", 0) else u8
    to = to if zero is None else zero.tensor.dtype
    if not to.is_int or to.bits > 16:
        raise call.refuse(f"to {to}", "quantise to 8 or 16 bit integers")
    shaped = _along(call, scale, x)
    assert shaped is not None
    return quantized(x, shaped, _along(call, zero, x), to)


@onnx("DequantizeLinear", since=10)
def import_dequantize_linear(call: OnnxCall) -> Node:
    """Integers to floats, per tensor or per axis."""
    x, scale, zero = call.arg(0), call.arg(1), call.optional(2)
    shaped = _along(call, scale, x)
    assert shaped is not None
    return dequantized(x, shaped, _along(call, zero, x))


@onnx("DynamicQuantizeLinear", since=11)
def import_dynamic_quantize_linear(call: OnnxCall) -> tuple[Node, Node, Node]:
    """x in u8 with a scale and zero point from its own range, which always includes 0."""
    x = call.arg(0)
    axes, nought = tuple(range(x.tensor.rank)), constant(0, x)
    low = Node(Minimum(), (reduced("min", x, axes, keepdims=False), nought))
    high = Node(Maximum(), (reduced("max", x, axes, keepdims=False), nought))
    scale = Node(Div(), (Node(Sub(), (high, low)), constant(255, x)))
    origin = constant(0, x)
    shifted = Node(Sub(), (origin, Node(Div(), (low, scale))))
    zero = Node(Quantize(u8), (shifted, constant(1, x), constant(np.uint8(0))))
    return quantized(x, scale, zero, u8), scale, zero


def centred(x: Node, zero: Node | None) -> Node:
    """x - zero_point, exact in i16; `x` itself if the zero point is known to be 0."""
    if zero is not None:
        value = known_value(zero)
        if value is not None and not np.any(value):
            zero = None
    if zero is None:
        return x
    return Node(Sub(), (converted(x, i16), converted(zero, i16)))


def _scalar(call: OnnxCall, k: int) -> Node | None:
    """Optional argument `k` as a scalar; None if it is omitted."""
    found = call.optional(k)
    if found is None or found.tensor.shape not in ((), (1,)):
        return found
    return reshape(found, ())


def _column(vector: Node | None, rank: int) -> Node | None:
    """A per-row zero point of a matrix operand, shaped to broadcast along its last axis."""
    if vector is None or vector.tensor.rank != 1 or rank < 2:
        return vector
    return reshape(vector, (vector.tensor.shape[0], 1))


@onnx("MatMulInteger", since=10)
def import_matmul_integer(call: OnnxCall) -> Node:
    """(a - zero) (b - zero) in i32."""
    a, b = call.arg(0), call.arg(1)
    a = centred(a, _column(_scalar(call, 2), a.tensor.rank))
    return matmul(a, centred(b, _scalar(call, 3)))


def _convolved(call: OnnxCall, x: Node, w: Node, zero_x: Node | None, zero_w: Node | None) -> Node:
    """The convolution of centred integers, in i32; w's zero point may be per filter."""
    if zero_w is not None and zero_w.tensor.rank == 1:
        zero_w = reshape(zero_w, (zero_w.tensor.shape[0], *((1,) * (w.tensor.rank - 1))))
    geometry = onnx_window(call, kernel_of(call, w), x.tensor.shape[2:])
    op = Convolve(geometry, call.attr("group", 1))
    return Node(op, (centred(x, zero_x), centred(w, zero_w)))


@onnx("ConvInteger", since=10)
def import_conv_integer(call: OnnxCall) -> Node:
    """Convolution of (x - zero) with (w - zero) in i32."""
    return _convolved(call, call.arg(0), call.arg(1), _scalar(call, 2), _scalar(call, 3))


def _requantized(total: Node, factor: Node, zero: Node) -> Node:
    """round(total * factor) + zero, saturated to the zero point's type."""
    value = Node(Mul(), (converted(total, f32), factor))
    return quantized(value, constant(np.float32(1)), zero, zero.tensor.dtype)


def _factor(x: Node, w: Node, y: Node) -> Node:
    return Node(Div(), (Node(Mul(), (x, w)), y))


def _required(call: OnnxCall, k: int) -> Node:
    found = _scalar(call, k)
    return call.arg(k) if found is None else found


@onnx("QLinearConv", since=10)
def import_qlinear_conv(call: OnnxCall) -> Node:
    """Convolution of quantised tensors, requantised; the bias is i32 in the product's scale."""
    x, w = call.arg(0), call.arg(3)
    total = _convolved(call, x, w, _required(call, 2), _required(call, 5))
    total = with_bias(total, call.optional(8))
    scale = _required(call, 4)
    if scale.tensor.rank == 1:
        scale = per_channel(scale, x.tensor.rank)
    factor = _factor(_required(call, 1), scale, _required(call, 6))
    return _requantized(total, factor, _required(call, 7))


@onnx("QLinearMatMul", since=10)
def import_qlinear_matmul(call: OnnxCall) -> Node:
    """Matrix product of quantised operands, requantised."""
    a, b = call.arg(0), call.arg(3)
    zero_a = _column(_required(call, 2), a.tensor.rank)
    total = matmul(centred(a, zero_a), centred(b, _required(call, 5)))
    scale_a = _column(_required(call, 1), a.tensor.rank)
    assert scale_a is not None
    factor = _factor(scale_a, _required(call, 4), _required(call, 6))
    return _requantized(total, factor, _required(call, 7))


def _elementwise(call: OnnxCall, op: Pointwise) -> Node:
    """op of two dequantised operands, quantised again."""
    a = dequantized(call.arg(0), _required(call, 1), _scalar(call, 2))
    b = dequantized(call.arg(3), _required(call, 4), _scalar(call, 5))
    zero = _scalar(call, 7)
    to = call.arg(0).tensor.dtype if zero is None else zero.tensor.dtype
    return quantized(Node(op, (a, b)), _required(call, 6), zero, to)


@onnx("QLinearAdd", domain="com.microsoft")
def import_qlinear_add(call: OnnxCall) -> Node:
    """Sum of two quantised tensors."""
    return _elementwise(call, Add())


@onnx("QLinearMul", domain="com.microsoft")
def import_qlinear_mul(call: OnnxCall) -> Node:
    """Product of two quantised tensors."""
    return _elementwise(call, Mul())
