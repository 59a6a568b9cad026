"""Folds over guarded windows: the taps outside the operand are left out instead of tested one by one.

Not here: halos, which make such guards unnecessary (layouts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from unistack_aot.base.symbolic import (
    Dim,
    ceildiv,
    linear_split,
    maximum,
    minimum,
    symbol,
    symbols,
)
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import (
    Call,
    Cast,
    Index,
    Lit,
    Scalar,
    all_of,
    index_symbols,
    substitute_indices,
    where,
)
from unistack_aot.mcir.monoids import MONOIDS
from unistack_aot.mcir.nodes import Axis, Fold
from unistack_aot.mcir.transform import substitute_vars
from unistack_aot.schedule.operator import Kernels, Operator, on_fold

Limits = dict[str, tuple[Dim, Dim]]  # first tap and one past the last, by fold variable


def can_clip(fold: Fold, lane: str = "") -> Yes | No:
    """Whether a guard of the fold becomes a limit of one of its axes."""
    found = _limits(fold, lane)
    return found if isinstance(found, No) else YES


def clipped(fold: Fold, lane: str = "") -> Fold:
    """The fold over the taps that pass its guard; conditions that depend on `lane` or on two axes stay.

    before:
        kernel pool(x: f32[9] far) -> y: f32[5] far {
          for i in 5 {
            m = fold max over k in 3 of where(0 <= [2*i + k - 1] and [2*i + k - 1] < 9, x[2*i + k - 1], -inf)
            y[i] = m
          }
        }
    after:
        kernel k0(x: f32[9] far) -> y: f32[5] far {
          for i in 5 {
            m = fold max over k in max(0, min(3, -2*i + 10) - max(0, -2*i + 1)) of x[2*i + k + max(0, -2*i + 1) - 1]
            y[i] = m
          }
        }
    """
    found = _limits(fold, lane)
    assert not isinstance(found, No)
    guard, limits, kept = found
    moved: Mapping[str, Dim] = {
        var: symbol(var) + first for var, (first, _) in limits.items() if first != 0
    }
    value = where(all_of(*kept), guard.args[1], guard.args[2]) if kept else guard.args[1]
    axes = tuple(Axis(a.var, maximum(0, limits[a.var][1] - limits[a.var][0])) for a in fold.axes)
    body = substitute_vars(fold.body, moved)
    return replace(fold, axes=axes, values=(substitute_indices(value, moved),), body=body)


def _limits(fold: Fold, lane: str) -> tuple[Call, Limits, tuple[Scalar, ...]] | No:
    """The fold's guard, the limits of its axes that follow, and the conditions that stay."""
    guard = _guard(fold)
    if guard is None:
        return No("its value is no guarded one")
    limits: Limits = {axis.var: (0, axis.extent) for axis in fold.axes}
    kept = tuple(c for c in conjuncts(guard.args[0]) if not _limited(c, fold, lane, limits))
    if all(limits[a.var] == (0, a.extent) for a in fold.axes):
        return No("its guard limits no axis")
    return guard, limits, kept


def _guard(fold: Fold) -> Call | None:
    """The fold's value if it is `where(condition, value, identity)`."""
    if len(fold.values) != 1:
        return None
    value = fold.values[0]
    if not (isinstance(value, Call) and value.fn == "where"):
        return None
    identity = MONOIDS[fold.monoid].identity((value.dtype,))[0]
    other: Scalar = value.args[2]
    while isinstance(other, Cast):
        other = other.value
    while isinstance(identity, Cast):
        identity = identity.value
    same = isinstance(other, Lit) and isinstance(identity, Lit) and other.value == identity.value
    return value if same else None


def conjuncts(condition: Scalar) -> tuple[Scalar, ...]:
    """The conditions that hold together where this one holds."""
    if isinstance(condition, Call) and condition.fn == "and":
        return tuple(c for arg in condition.args for c in conjuncts(arg))
    return (condition,)


def _limited(condition: Scalar, fold: Fold, lane: str, limits: Limits) -> bool:
    """Whether the condition became a limit of one axis."""
    used = [axis.var for axis in fold.axes if axis.var in index_symbols(condition)]
    if len(used) != 1 or lane in index_symbols(condition):
        return False
    room = room_of(condition)
    if room is None:
        return False
    parts = linear_split(room, used[0])
    if parts is None or not isinstance(parts[0], int) or used[0] in symbols(parts[1]):
        return False
    step, rest = parts[0], parts[1]
    first, end = limits[used[0]]
    if step > 0:
        limits[used[0]] = (maximum(first, ceildiv(-rest, step)), end)
    else:
        limits[used[0]] = (first, minimum(end, rest // -step + 1))
    return step != 0


def room_of(condition: Scalar) -> Dim | None:
    """What is >= 0 exactly where a comparison of index expressions holds; None for others."""
    if not (isinstance(condition, Call) and condition.fn in ("lt", "le")):
        return None
    low, high = (_dim(arg) for arg in condition.args)
    if low is None or high is None:
        return None
    return high - low - (1 if condition.fn == "lt" else 0)


def _dim(value: Scalar) -> Dim | None:
    """An index expression or an integer literal."""
    if isinstance(value, Index):
        return value.dim
    if isinstance(value, Lit) and isinstance(value.value, int):
        return int(value.value)
    return None


def _example(kernels: Kernels) -> Kernels | No:
    return on_fold(lambda _, fold: CLIP(fold), kernels)


CLIP = Operator("clip", can_clip, clipped, _example)
