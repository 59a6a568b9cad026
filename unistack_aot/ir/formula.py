"""The words in which a pointwise op's formula is written: `exp(x)`, `where(x < 0, a, b)`, `clamp(x, 0, 1)`."""

from __future__ import annotations

from unistack_aot.ir.scalar import Operand, Scalar, call, cast, where

__all__ = ["cast", "where"]


def exp(x: Scalar) -> Scalar:
    """e to the power of x."""
    return call("exp", x)


def log(x: Scalar) -> Scalar:
    """Natural logarithm."""
    return call("log", x)


def sqrt(x: Scalar) -> Scalar:
    """Square root."""
    return call("sqrt", x)


def rsqrt(x: Scalar) -> Scalar:
    """1 / sqrt(x)."""
    return call("rsqrt", x)


def tanh(x: Scalar) -> Scalar:
    """Hyperbolic tangent."""
    return call("tanh", x)


def erf(x: Scalar) -> Scalar:
    """The error function."""
    return call("erf", x)


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x)), without overflow."""
    return call("sigmoid", x)


def floor(x: Scalar) -> Scalar:
    """Largest integer not above x."""
    return call("floor", x)


def round_even(x: Scalar) -> Scalar:
    """Nearest integer, ties to even."""
    return call("round_even", x)


def absolute(x: Scalar) -> Scalar:
    """Magnitude of x."""
    return call("abs", x)


def minimum(x: Scalar, y: Operand) -> Scalar:
    """The smaller operand; NaN if either is NaN."""
    return call("min", x, y)


def maximum(x: Scalar, y: Operand) -> Scalar:
    """The larger operand; NaN if either is NaN."""
    return call("max", x, y)


def clamp(x: Scalar, low: Operand, high: Operand) -> Scalar:
    """x limited to [low, high]; NaN stays NaN."""
    return minimum(maximum(x, low), high)


def relu(x: Scalar) -> Scalar:
    """max(x, 0)."""
    return maximum(x, 0)


def equal(x: Scalar, y: Operand) -> Scalar:
    """x == y."""
    return call("eq", x, y)


def both(x: Scalar, y: Scalar) -> Scalar:
    """Logical and."""
    return call("and", x, y)
