"""The scalar functions of all formulas: numpy meaning, dtype rule and algebraic properties. Not here: C spelling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unistack_aot.base.dtypes import DType, bool_

DtypeRule = Callable[[Sequence[DType]], DType | None]


@dataclass(frozen=True, slots=True)
class Function:
    """One scalar function.

    `evaluate` works on numpy arrays elementwise; `result` gives the dtype or None where it is undefined.
    `increasing`: a <= b implies f(a) <= f(b), so f passes max and min. `zero_preserving`: f(0) = 0, so f passes
    zero padding. `total`: f(a) is NaN for NaN and for nothing else. `turns` = (outer, inner):
    f(a outer b) = f(a) inner f(b), e.g. exp turns add into mul.
    `cost` is in floating-point operations, for the cost model.
    """

    name: str
    arity: int
    evaluate: Callable[..., Any]
    result: DtypeRule
    increasing: bool = False
    zero_preserving: bool = False
    total: bool = False
    commutative: bool = False
    associative: bool = False
    turns: tuple[str, str] | None = None
    cost: float = 1.0


FUNCTIONS: dict[str, Function] = {}


def _same(dtypes: Sequence[DType]) -> DType | None:
    return dtypes[0] if all(d is dtypes[0] for d in dtypes) else None


def _numeric(dtypes: Sequence[DType]) -> DType | None:
    return None if dtypes[0] is bool_ else _same(dtypes)


def _floating(dtypes: Sequence[DType]) -> DType | None:
    return _same(dtypes) if dtypes[0].is_float else None


def _integral(dtypes: Sequence[DType]) -> DType | None:
    return _same(dtypes) if dtypes[0].is_int else None


def _logical(dtypes: Sequence[DType]) -> DType | None:
    return bool_ if all(d is bool_ for d in dtypes) else None


def _compare(dtypes: Sequence[DType]) -> DType | None:
    return bool_ if _same(dtypes) else None


def _classify(dtypes: Sequence[DType]) -> DType | None:
    return bool_ if dtypes[0].is_float else None


def _select(dtypes: Sequence[DType]) -> DType | None:
    return _same(dtypes[1:]) if dtypes[0] is bool_ else None


def _declare(
    name: str, arity: int, evaluate: Callable[..., Any], result: DtypeRule, **properties: Any
) -> None:
    FUNCTIONS[name] = Function(name, arity, evaluate, result, **properties)


def _divide(a: Any, b: Any) -> Any:
    """True division for floats; division truncated towards zero for integers (ONNX Div)."""
    if np.asarray(a).dtype.kind not in "iu":
        return a / b
    quotient = np.floor_divide(a, b)
    return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(quotient.dtype)


def _in_float(function: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate f16/bf16 through f32, as hardware and kernels do, rounding once at the end."""

    def wrapped(*args: Any) -> Any:
        dtype = np.asarray(args[0]).dtype
        if dtype.itemsize >= 4:
            return np.asarray(function(*args)).astype(dtype)
        return np.asarray(function(*(np.asarray(a).astype(np.float32) for a in args))).astype(dtype)

    return wrapped


def _sigmoid(x: Any) -> Any:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), 1 - 1 / (1 + np.exp(-np.abs(x))))


def _power(x: Any, y: Any) -> Any:
    """Powers; negative integer exponents of integers go through float, as in onnxruntime."""
    if np.asarray(x).dtype.kind in "iu":
        return np.power(np.asarray(x, np.float64), y).astype(np.asarray(x).dtype)
    return np.power(x, y)


_erf = np.frompyfunc(math.erf, 1, 1)


def _shift_left(a: Any, b: Any) -> Any:
    return np.left_shift(a, b)


for _name, _evaluate, _properties in (
    ("add", np.add, {"commutative": True, "associative": True}),
    ("mul", np.multiply, {"commutative": True, "associative": True}),
    ("sub", np.subtract, {}),
    ("min", np.minimum, {"commutative": True, "associative": True}),
    ("max", np.maximum, {"commutative": True, "associative": True}),
    ("div", _divide, {"cost": 4.0}),
    ("pow", _in_float(_power), {"cost": 20.0}),
    ("mod", np.remainder, {"cost": 6.0}),
    ("fmod", np.fmod, {"cost": 6.0}),
):
    _declare(_name, 2, _evaluate, _numeric, **_properties)

for _name, _evaluate, _properties in (
    ("neg", np.negative, {"total": True, "zero_preserving": True}),
    ("abs", np.abs, {"total": True, "zero_preserving": True}),
    ("sign", np.sign, {"total": True, "zero_preserving": True, "increasing": True}),
):
    _declare(_name, 1, _evaluate, _numeric, **_properties)

for _name, _evaluate, _properties in (
    ("exp", np.exp, {"total": True, "increasing": True, "turns": ("add", "mul"), "cost": 10.0}),
    ("log", np.log, {"increasing": True, "turns": ("mul", "add"), "cost": 10.0}),
    ("log1p", np.log1p, {"increasing": True, "zero_preserving": True, "cost": 12.0}),
    ("expm1", np.expm1, {"total": True, "increasing": True, "zero_preserving": True, "cost": 12.0}),
    ("sqrt", np.sqrt, {"increasing": True, "zero_preserving": True, "cost": 4.0}),
    ("rsqrt", lambda x: 1 / np.sqrt(x), {"cost": 5.0}),
    ("reciprocal", lambda x: 1 / np.asarray(x), {"cost": 4.0}),
    ("tanh", np.tanh, {"total": True, "increasing": True, "zero_preserving": True, "cost": 15.0}),
    ("sigmoid", _sigmoid, {"total": True, "increasing": True, "cost": 14.0}),
    (
        "erf",
        lambda x: np.asarray(_erf(x), np.float64),
        {"total": True, "increasing": True, "zero_preserving": True, "cost": 20.0},
    ),
    ("sin", np.sin, {"zero_preserving": True, "cost": 15.0}),
    ("cos", np.cos, {"cost": 15.0}),
    ("tan", np.tan, {"zero_preserving": True, "cost": 20.0}),
    ("asin", np.arcsin, {"increasing": True, "zero_preserving": True, "cost": 20.0}),
    ("acos", np.arccos, {"cost": 20.0}),
    ("atan", np.arctan, {"total": True, "increasing": True, "zero_preserving": True, "cost": 20.0}),
    ("sinh", np.sinh, {"total": True, "increasing": True, "zero_preserving": True, "cost": 20.0}),
    ("cosh", np.cosh, {"total": True, "cost": 20.0}),
    (
        "asinh",
        np.arcsinh,
        {"total": True, "increasing": True, "zero_preserving": True, "cost": 20.0},
    ),
    ("acosh", np.arccosh, {"cost": 20.0}),
    ("atanh", np.arctanh, {"increasing": True, "zero_preserving": True, "cost": 20.0}),
    ("floor", np.floor, {"total": True, "increasing": True, "zero_preserving": True}),
    ("ceil", np.ceil, {"total": True, "increasing": True, "zero_preserving": True}),
    ("round_even", np.rint, {"total": True, "increasing": True, "zero_preserving": True}),
    ("trunc", np.trunc, {"total": True, "increasing": True, "zero_preserving": True}),
):
    _declare(_name, 1, _in_float(_evaluate), _floating, **_properties)

_declare("isnan", 1, np.isnan, _classify)
_declare("isinf", 1, np.isinf, _classify)
_declare("eq", 2, np.equal, _compare, commutative=True)
_declare("lt", 2, np.less, _compare)
_declare("le", 2, np.less_equal, _compare)
_declare("and", 2, np.logical_and, _logical, commutative=True, associative=True)
_declare("or", 2, np.logical_or, _logical, commutative=True, associative=True)
_declare("xor", 2, np.logical_xor, _logical, commutative=True, associative=True)
_declare("not", 1, np.logical_not, _logical)
_declare("bit_and", 2, np.bitwise_and, _integral, commutative=True, associative=True)
_declare("bit_or", 2, np.bitwise_or, _integral, commutative=True, associative=True)
_declare("bit_xor", 2, np.bitwise_xor, _integral, commutative=True, associative=True)
_declare("bit_not", 1, np.bitwise_not, _integral)
_declare("shift_left", 2, _shift_left, _integral)
_declare("shift_right", 2, np.right_shift, _integral)
_declare("where", 3, np.where, _select)
