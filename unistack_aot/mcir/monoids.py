"""Monoids of online reductions: state, lift, merge and result, each declared once. Not here: loops that fold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from unistack_aot.base.dtypes import DType, bool_, f32, i64
from unistack_aot.ir import formula as find
from unistack_aot.ir.scalar import Scalar, call, cast, literal, where

State = tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Monoid:
    """An associative merge with identity over a tuple of state fields.

    `fields(dtypes)` gives the state's dtypes for input dtypes; `identity(dtypes)` the neutral state; `lift(values)` the
    state of one element; `merge(a, b)` combines two states (cross-lane and split forms follow from it).
    `commutative` says the order of elements is free as well as the grouping.
    """

    name: str
    fields: Callable[[tuple[DType, ...]], tuple[DType, ...]]
    identity: Callable[[tuple[DType, ...]], State]
    lift: Callable[[State], State]
    merge: Callable[[State, State], State]
    commutative: bool = True


MONOIDS: dict[str, Monoid] = {}


def accumulator(dtype: DType) -> DType:
    """The dtype sums are kept in: f32 for narrower floats, the dtype itself otherwise."""
    return f32 if dtype.is_narrow else dtype


def lowest(dtype: DType) -> Scalar:
    """The identity of max."""
    if dtype is bool_:
        return literal(False, dtype)
    if dtype.is_float:
        return literal(-math.inf, dtype)
    return literal(-(1 << (dtype.bits - 1)) if dtype.is_signed else 0, dtype)


def highest(dtype: DType) -> Scalar:
    """The identity of min."""
    if dtype is bool_:
        return literal(True, dtype)
    if dtype.is_float:
        return literal(math.inf, dtype)
    return literal((1 << (dtype.bits - (1 if dtype.is_signed else 0))) - 1, dtype)


def _simple(name: str, fn: str, identity: Callable[[DType], Scalar], wide: bool) -> None:
    def fields(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
        return (accumulator(dtypes[0]) if wide else dtypes[0],)

    MONOIDS[name] = Monoid(
        name,
        fields,
        lambda dtypes: (identity(fields(dtypes)[0]),),
        lambda values: (cast(fields((values[0].dtype,))[0], values[0]),),
        lambda a, b: (call(fn, a[0], b[0]),),
    )


_simple("sum", "add", lambda d: literal(0, d), wide=True)
_simple("prod", "mul", lambda d: literal(1, d), wide=True)
_simple("max", "max", lowest, wide=False)
_simple("min", "min", highest, wide=False)
_simple("any", "or", lambda d: literal(False, d), wide=False)
_simple("all", "and", lambda d: literal(True, d), wide=False)


def _merge_softmax(a: State, b: State) -> State:
    """(m, l) + (n, k) = (max, l e^(m - max) + k e^(n - max)); arXiv 1805.02867. Two empty states stay empty."""
    top = find.maximum(a[0], b[0])
    empty = find.equal(top, -math.inf)
    base = where(empty, 0.0, top)
    return top, a[1] * find.exp(a[0] - base) + b[1] * find.exp(b[0] - base)


def _softmax_fields(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    wide = accumulator(dtypes[0])
    return wide, wide


def _lift_softmax(values: State) -> State:
    x = cast(accumulator(values[0].dtype), values[0])
    return x, literal(1, x.dtype)


MONOIDS["softmax"] = Monoid(
    "softmax",
    _softmax_fields,
    lambda dtypes: (lowest(_softmax_fields(dtypes)[0]), literal(0, _softmax_fields(dtypes)[1])),
    _lift_softmax,
    _merge_softmax,
)


def _merge_moments(a: State, b: State) -> State:
    """Chan's merge of (count, mean, M2).

    Means that are infinite or NaN add up as their elements would, and nothing has a distance from them.
    """
    count = a[0] + b[0]
    delta = b[1] - a[1]
    share = where(find.equal(count, 0), 0, b[0] / where(find.equal(count, 0), 1, count))
    near = find.equal(delta - delta, 0)
    mean = a[1] + where(near, delta * share, b[1])
    return count, mean, a[2] + b[2] + where(near, delta * delta * a[0] * share, math.nan)


def _moment_fields(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    wide = accumulator(dtypes[0])
    return wide, wide, wide


def _lift_moments(values: State) -> State:
    x = cast(accumulator(values[0].dtype), values[0])
    return literal(1, x.dtype), x, literal(0, x.dtype)


MONOIDS["moments"] = Monoid(
    "moments",
    _moment_fields,
    lambda dtypes: tuple(literal(0, d) for d in _moment_fields(dtypes)),
    _lift_moments,
    _merge_moments,
)


def _extreme(name: str, greatest: bool, last: bool) -> None:
    """(value, position); on ties the lower (or, with `last`, the higher) position; NaN wins, as in numpy."""

    def merge(a: State, b: State) -> State:
        beats = call("lt", a[0], b[0]) if greatest else call("lt", b[0], a[0])
        tie = call("eq", a[0], b[0])
        if a[0].dtype.is_float:
            held, fresh = call("isnan", a[0]), call("isnan", b[0])
            beats = call("and", call("not", held), call("or", beats, fresh))
            tie = call("or", tie, call("and", held, fresh))
        order = call("lt", a[1], b[1]) if last else call("lt", b[1], a[1])
        take = call("or", beats, call("and", tie, order))
        return where(take, b[0], a[0]), where(take, b[1], a[1])

    start = lowest if greatest else highest
    MONOIDS[name] = Monoid(
        name,
        lambda dtypes: (dtypes[0], i64),
        lambda dtypes: (start(dtypes[0]), literal(-1 if last else 1 << 62, i64)),
        lambda values: (values[0], values[1]),
        merge,
    )


for _greatest in (True, False):
    for _last in (False, True):
        _extreme(f"arg{'max' if _greatest else 'min'}{'_last' if _last else ''}", _greatest, _last)
