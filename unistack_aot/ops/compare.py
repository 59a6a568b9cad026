"""Pointwise truth values: comparisons, logic, classification, selection. Not here: bit masks."""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array
from unistack_aot.base.dtypes import bool_, i64
from unistack_aot.base.errors import IRError
from unistack_aot.ir.dimensions import symbolic_formula
from unistack_aot.ir.scalar import Scalar, call, literal, where
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Pointwise, sample
from unistack_aot.ops.pointwise import Binary, Unary

_PAIRS = ("f32[2,3], f32[3]", "i64[4], i64[]", "f16[5], f16[5]", "i32[2,3], i32[2,1]")


@onnx("Equal", since=7)
@dataclass(frozen=True)
class Equal(Binary):
    """x == y; NaN equals nothing."""

    fn = "eq"
    samples = (*_PAIRS, "bool[4], bool[4]")


@onnx("Less", since=7)
@dataclass(frozen=True)
class Less(Binary):
    """x < y."""

    fn = "lt"
    samples = _PAIRS


@onnx("LessOrEqual", since=12)
@dataclass(frozen=True)
class LessOrEqual(Binary):
    """x <= y."""

    fn = "le"
    samples = _PAIRS


@onnx("Greater", since=7)
def import_greater(call: OnnxCall) -> Node:
    """x > y is y < x."""
    return Node(Less(), (call.arg(1), call.arg(0)))


@onnx("GreaterOrEqual", since=12)
def import_greater_or_equal(call: OnnxCall) -> Node:
    """x >= y is y <= x."""
    return Node(LessOrEqual(), (call.arg(1), call.arg(0)))


class Logical(Binary, abstract=True):
    """A function of two truth values."""

    samples = ("bool[2,3], bool[3]", "bool[5], bool[5]")

    def symbolic(self, *values: Array) -> Array | None:
        """The formula over decided truth values."""
        return symbolic_formula(self.formula([bool_, bool_]), values)


@onnx("And", since=7)
@dataclass(frozen=True)
class And(Logical):
    """x and y."""

    fn = "and"


@onnx("Or", since=7)
@dataclass(frozen=True)
class Or(Logical):
    """x or y."""

    fn = "or"


@onnx("Xor", since=7)
@dataclass(frozen=True)
class Xor(Logical):
    """Exactly one of x and y."""

    fn = "xor"


@onnx("Not")
@dataclass(frozen=True)
class Not(Unary):
    """The opposite truth value."""

    fn = "not"
    samples = ("bool[2,3]",)

    def symbolic(self, *values: Array) -> Array | None:
        """The formula over decided truth values."""
        return symbolic_formula(self.formula([bool_]), values)


@onnx("IsNaN", since=9)
@dataclass(frozen=True)
class IsNan(Unary):
    """Whether x is not a number."""

    fn = "isnan"
    samples = (sample("f32[9]", fill=("special",)), sample("f16[9]", fill=("special",)))


@dataclass(frozen=True)
class IsInf(Pointwise):
    """Whether x is one of the selected infinities."""

    negative: bool = True
    positive: bool = True

    samples = (
        sample("f32[9]", fill=("special",)),
        sample("f32[9]", fill=("special",), negative=False),
        sample("f32[9]", fill=("special",), positive=False),
    )

    def scalar(self, x: Scalar) -> Scalar:
        """isinf(x), restricted by sign."""
        infinite = call("isinf", x)
        if self.negative and self.positive:
            return infinite
        if not self.negative and not self.positive:
            return call("and", infinite, literal(False, bool_))
        return call("and", infinite, x < 0 if self.negative else x > 0)


@onnx("IsInf", since=10)
def import_is_inf(call: OnnxCall) -> Node:
    """IsInf with the signs its attributes ask for."""
    op = IsInf(bool(call.attr("detect_negative", 1)), bool(call.attr("detect_positive", 1)))
    return Node(op, (call.arg(0),))


@onnx("Where", since=9)
@dataclass(frozen=True)
class Where(Pointwise):
    """x where the condition holds, else y."""

    samples = ("bool[2,3], f32[2,3], f32[3]", "bool[3], i64[], i64[3]", "bool[], f16[2], f16[2]")

    def scalar(self, condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
        """where(condition, x, y)."""
        return where(condition, x, y)

    def symbolic(self, *values: Array) -> Array | None:
        """The selected dimensions, where the condition is decided."""
        try:
            return symbolic_formula(self.formula([bool_, i64, i64]), values)
        except (IRError, TypeError):
            return None
