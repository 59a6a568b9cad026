"""Pointwise circular and hyperbolic functions. Not here: Tanh (activation.py)."""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.ops.onnx import onnx
from unistack_aot.ops.op import sample
from unistack_aot.ops.pointwise import Unary

_UNIT = (sample("f32[2,3]", fill=("unit",)), sample("f16[5]", fill=("unit",)))


@onnx("Sin", since=7)
@dataclass(frozen=True)
class Sin(Unary):
    """Sine."""

    fn = "sin"


@onnx("Cos", since=7)
@dataclass(frozen=True)
class Cos(Unary):
    """Cosine."""

    fn = "cos"


@onnx("Tan", since=7)
@dataclass(frozen=True)
class Tan(Unary):
    """Tangent."""

    fn = "tan"


@onnx("Asin", since=7)
@dataclass(frozen=True)
class Asin(Unary):
    """Inverse sine; NaN outside [-1, 1]."""

    fn = "asin"
    samples = _UNIT


@onnx("Acos", since=7)
@dataclass(frozen=True)
class Acos(Unary):
    """Inverse cosine; NaN outside [-1, 1]."""

    fn = "acos"
    samples = _UNIT


@onnx("Atan", since=7)
@dataclass(frozen=True)
class Atan(Unary):
    """Inverse tangent."""

    fn = "atan"


@onnx("Sinh", since=9)
@dataclass(frozen=True)
class Sinh(Unary):
    """Hyperbolic sine."""

    fn = "sinh"


@onnx("Cosh", since=9)
@dataclass(frozen=True)
class Cosh(Unary):
    """Hyperbolic cosine."""

    fn = "cosh"


@onnx("Asinh", since=9)
@dataclass(frozen=True)
class Asinh(Unary):
    """Inverse hyperbolic sine."""

    fn = "asinh"


@onnx("Acosh", since=9)
@dataclass(frozen=True)
class Acosh(Unary):
    """Inverse hyperbolic cosine; NaN below 1."""

    fn = "acosh"
    samples = (sample("f32[2,3]", fill=("above_one",)),)


@onnx("Atanh", since=9)
@dataclass(frozen=True)
class Atanh(Unary):
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""

    fn = "atanh"
    samples = _UNIT
