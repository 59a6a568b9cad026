"""Pointwise arithmetic: one scalar formula per op. Not here: comparisons, activations, casts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unistack_aot.aicf.node import Node
from unistack_aot.base.dtypes import f64
from unistack_aot.ir.formula import clamp
from unistack_aot.ir.scalar import Scalar, all_of, call, cast, literal, where
from unistack_aot.ops.core import constant
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Pointwise, sample


class Unary(Pointwise, abstract=True):
    """One function of `ir/functions.py` applied to one operand."""

    fn: ClassVar[str]

    samples = ("f32[2,3]", "f16[5]")

    def scalar(self, x: Scalar) -> Scalar:
        """fn(x)."""
        return call(self.fn, x)


class Binary(Pointwise, abstract=True):
    """One function of `ir/functions.py` applied to two operands."""

    fn: ClassVar[str]

    samples = ("f32[2,3], f32[3]", "i64[4], i64[]", "f16[2,1,3], f16[2,1]")

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        """fn(x, y)."""
        return call(self.fn, x, y)


@onnx("Add", since=7)
@dataclass(frozen=True)
class Add(Binary):
    """x + y."""

    fn = "add"


@onnx("Sub", since=7)
@dataclass(frozen=True)
class Sub(Binary):
    """x - y."""

    fn = "sub"


@onnx("Mul", since=7)
@dataclass(frozen=True)
class Mul(Binary):
    """x * y."""

    fn = "mul"


@onnx("Div", since=7)
@dataclass(frozen=True)
class Div(Binary):
    """x / y; integers truncate towards zero."""

    fn = "div"
    samples = (
        "f32[2,3], f32[3]",
        sample("i32[6], i32[6]", fill=("small", "nonzero")),
        sample("i64[2,3], i64[]", fill=("small", "nonzero")),
        "f16[2,3], f16[2,3]",
    )


@dataclass(frozen=True)
class Modulo(Binary):
    """Remainder with the sign of y (ONNX Mod with fmod=0)."""

    fn = "mod"
    samples = (
        sample("i32[6], i32[6]", fill=("small", "nonzero")),
        sample("u8[5], u8[]", fill=("small", "nonzero")),
    )


@dataclass(frozen=True)
class Fmod(Binary):
    """Remainder with the sign of x, as C fmod (ONNX Mod with fmod=1)."""

    fn = "fmod"
    samples = (
        "f32[2,3], f32[3]",
        sample("i64[6], i64[6]", fill=("small", "nonzero")),
    )


@onnx("Mod", since=10)
def import_mod(call: OnnxCall) -> Node:
    """Mod; attribute fmod chooses the sign rule."""
    op = Fmod() if call.attr("fmod", 0) else Modulo()
    if isinstance(op, Modulo) and call.arg(0).tensor.dtype.is_float:
        raise call.refuse("of floats with fmod=0", "set fmod=1: the specification requires it")
    return Node(op, (call.arg(0), call.arg(1)))


@onnx("Pow", since=7)
@dataclass(frozen=True)
class Pow(Pointwise):
    """x to the power y in the dtype of x; the exponent may have another dtype."""

    samples = (
        sample("f32[2,3], f32[3]", fill=("positive", "normal")),
        sample("f32[5], f32[]", fill=("normal", "small")),
        sample("f32[5], i64[]", fill=("normal", "small")),
        sample("i32[4], i32[]", fill=("small", "count")),
        sample("i64[4], f32[]", fill=("small", "count")),
        sample("f16[4], f16[4]", fill=("positive", "normal")),
    )

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        """pow(x, y); an integer base with a float exponent goes through f64, as in onnxruntime."""
        if x.dtype.is_int and y.dtype.is_float:
            return cast(x.dtype, call("pow", cast(f64, x), cast(f64, y)))
        return call("pow", x, cast(x.dtype, y))


@dataclass(frozen=True)
class Minimum(Binary):
    """The smaller of x and y; NaN if either is."""

    fn = "min"


@dataclass(frozen=True)
class Maximum(Binary):
    """The larger of x and y; NaN if either is."""

    fn = "max"


def _chain(call: OnnxCall, op: Pointwise) -> Node:
    result = call.arg(0)
    for k in range(1, len(call.args)):
        result = Node(op, (result, call.arg(k)))
    return result


@onnx("Max", since=8)
def import_max(call: OnnxCall) -> Node:
    """Max of any number of operands, pairwise."""
    return _chain(call, Maximum())


@onnx("Min", since=8)
def import_min(call: OnnxCall) -> Node:
    """Min of any number of operands, pairwise."""
    return _chain(call, Minimum())


@onnx("Sum", since=8)
def import_sum(call: OnnxCall) -> Node:
    """Sum of any number of operands, pairwise."""
    return _chain(call, Add())


@onnx("Mean", since=8)
def import_mean(call: OnnxCall) -> Node:
    """Mean of any number of operands."""
    total = _chain(call, Add())
    return Node(Div(), (total, constant(len(call.args), total)))


@onnx("Clip")
def import_clip(call: OnnxCall) -> Node:
    """Clip by attributes: min(max(x, low), high), each bound optional."""
    result = call.arg(0)
    if "min" in call.attributes:
        result = Node(Maximum(), (result, constant(call.attributes["min"], result)))
    if "max" in call.attributes:
        result = Node(Minimum(), (result, constant(call.attributes["max"], result)))
    return result


@onnx("Clip", since=11)
def import_clip_inputs(call: OnnxCall) -> Node:
    """Clip by inputs: min(max(x, low), high), each bound optional."""
    result = call.arg(0)
    low, high = call.optional(1), call.optional(2)
    if low is not None:
        result = Node(Maximum(), (result, low))
    if high is not None:
        result = Node(Minimum(), (result, high))
    return result


@onnx("Neg")
@dataclass(frozen=True)
class Neg(Unary):
    """-x."""

    fn = "neg"
    samples = ("f32[2,3]", "i32[4]", "f16[5]")


@onnx("Abs")
@dataclass(frozen=True)
class Abs(Unary):
    """Magnitude."""

    fn = "abs"
    samples = ("f32[2,3]", "i32[4]", "u8[4]")


@onnx("Sign", since=9)
@dataclass(frozen=True)
class Sign(Unary):
    """-1, 0 or 1."""

    fn = "sign"
    samples = ("f32[2,3]", "i32[4]")


@onnx("Sqrt")
@dataclass(frozen=True)
class Sqrt(Unary):
    """Square root."""

    fn = "sqrt"
    samples = (sample("f32[2,3]", fill=("positive",)), sample("f16[5]", fill=("positive",)))


@dataclass(frozen=True)
class Rsqrt(Unary):
    """1 / sqrt(x)."""

    fn = "rsqrt"
    samples = (sample("f32[2,3]", fill=("positive",)), sample("f16[5]", fill=("positive",)))


@onnx("Exp")
@dataclass(frozen=True)
class Exp(Unary):
    """e to the power x."""

    fn = "exp"


@onnx("Log")
@dataclass(frozen=True)
class Log(Unary):
    """Natural logarithm."""

    fn = "log"
    samples = (sample("f32[2,3]", fill=("positive",)), sample("f16[5]", fill=("positive",)))


@onnx("Reciprocal")
@dataclass(frozen=True)
class Reciprocal(Unary):
    """1 / x."""

    fn = "reciprocal"


@onnx("Floor")
@dataclass(frozen=True)
class Floor(Unary):
    """Largest integer not above x."""

    fn = "floor"


@onnx("Ceil")
@dataclass(frozen=True)
class Ceil(Unary):
    """Smallest integer not below x."""

    fn = "ceil"


@onnx("Round", since=11)
@dataclass(frozen=True)
class Round(Unary):
    """Nearest integer, ties to even."""

    fn = "round_even"
    samples = (sample("f32[9]", fill=("halves",)), "f16[5]")


@onnx("Erf", since=9)
@dataclass(frozen=True)
class Erf(Unary):
    """The error function."""

    fn = "erf"


class Shift(Pointwise, abstract=True):
    """Bits moved by y places; beyond 0 <= y < bits what ONNX-28 says, older opsets say nothing."""

    fn: ClassVar[str]

    samples = (
        sample("u8[4], u8[4]", fill=("small", "count")),
        sample("u32[9], u32[9]", fill=("full", "index:40")),
        sample("i32[9], i32[9]", fill=("full", "index:40")),
        sample("i8[9], i8[9]", fill=("full", "index:10")),
    )

    def scalar(self, x: Scalar, y: Scalar) -> Scalar:
        """fn(x, y), or what is left when every bit has moved out."""
        inside = all_of(literal(0, y.dtype) <= y, y < x.dtype.bits)
        return where(inside, call(self.fn, x, clamp(y, 0, x.dtype.bits - 1)), self.gone(x))

    def gone(self, x: Scalar) -> Scalar:
        """What is left then: nothing."""
        return literal(0, x.dtype)


@dataclass(frozen=True)
class ShiftLeft(Shift):
    """x * 2**y on integers, high bits lost."""

    fn = "shift_left"


@dataclass(frozen=True)
class ShiftRight(Shift):
    """x // 2**y on integers: the sign's bit moves in."""

    fn = "shift_right"

    def gone(self, x: Scalar) -> Scalar:
        """Copies of the sign's bit."""
        none = literal(0, x.dtype)
        return where(x < none, literal(-1, x.dtype), none) if x.dtype.is_signed else none


@onnx("BitShift", since=11)
def import_bit_shift(call: OnnxCall) -> Node:
    """BitShift in the direction of its attribute."""
    op = ShiftLeft() if call.attributes["direction"] == "LEFT" else ShiftRight()
    return Node(op, (call.arg(0), call.arg(1)))


@onnx("BitwiseAnd", since=18)
@dataclass(frozen=True)
class BitwiseAnd(Binary):
    """x & y."""

    fn = "bit_and"
    samples = ("i32[2,3], i32[3]", "u8[4], u8[4]")


@onnx("BitwiseOr", since=18)
@dataclass(frozen=True)
class BitwiseOr(Binary):
    """x | y."""

    fn = "bit_or"
    samples = ("i32[2,3], i32[3]", "u8[4], u8[4]")


@onnx("BitwiseXor", since=18)
@dataclass(frozen=True)
class BitwiseXor(Binary):
    """x ^ y."""

    fn = "bit_xor"
    samples = ("i32[2,3], i32[3]", "u8[4], u8[4]")


@onnx("BitwiseNot", since=18)
@dataclass(frozen=True)
class BitwiseNot(Unary):
    """~x."""

    fn = "bit_not"
    samples = ("i32[4]", "u8[4]")
