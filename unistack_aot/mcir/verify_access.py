"""Accesses of kernels: indices inside their buffers, parallel iterations that touch different elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unistack_aot.base.symbolic import (
    Dim,
    Min,
    Symbol,
    bounds,
    of_atom,
    simplify,
    substitute,
    symbols,
    terms,
    text,
)
from unistack_aot.ir.evaluate import Array
from unistack_aot.ir.scalar import Call, Index, IndexEntry, Load, Scalar, children, loads
from unistack_aot.mcir.distinct import determined
from unistack_aot.mcir.elements import index_array
from unistack_aot.mcir.nodes import Access, Stmt, Store
from unistack_aot.mcir.verify_scope import Around, Held, Scope, spread

POINTS = 1 << 16  # iterations that are tried where distinct addresses are not proven
TYPICAL = 7  # what an open dimension is then


def unguarded_loads(value: Scalar) -> tuple[Load, ...]:
    """Loads that happen whichever way the `where`s inside go."""
    seen: dict[Scalar, None] = {}
    stack = [value]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        chosen = isinstance(node, Call) and node.fn == "where" and any(map(loads, node.args[1:]))
        stack.extend(node.args[:1] if chosen and isinstance(node, Call) else children(node))
    return tuple(node for node in seen if isinstance(node, Load))


def check_inside(scope: Scope, stmt: Stmt, name: str, index: tuple[IndexEntry, ...]) -> None:
    """IRError if an index is proven to leave its buffer; what depends on data, or never runs, is exempt."""
    if any(each.count == 0 for each in scope.loops):
        return
    held = scope.buffers[name]
    halo = held.layout.halo or ((0, 0),) * len(held.shape)
    for axis, (entry, extent) in enumerate(zip(index, held.shape, strict=True)):
        if isinstance(entry, Scalar):
            continue
        before, after = halo[axis]
        if held.layout.block is not None and held.layout.block[0] == axis:
            after += -extent % held.layout.block[1] if isinstance(extent, int) else 0
        if _leaves(entry, extent + after, -before, scope):
            where = f"axis {axis} of {name}, which has {text(extent)} elements"
            raise scope.fault(stmt, f"index {text(entry)} leaves {where}")


def _leaves(entry: Dim, end: Dim, begin: int, scope: Scope) -> bool:
    """Whether some iteration is proven to be outside `begin .. end - 1`."""
    ranges = scope.ranges
    low, high = bounds(simplify(entry, ranges), ranges)
    if high is not None and high < begin:
        return True
    if (over := bounds(entry - end, ranges)[0]) is not None and over >= 0:
        return True
    if scope.guarded or low is None:
        return False
    worst = _extremes(entry, scope)
    if worst is None:
        return False
    least, most = worst
    below = bounds(least - begin, ranges)[1]
    above = bounds(most - end, ranges)[0]
    return (below is not None and below < 0) or (above is not None and above >= 0)


def _extremes(entry: Dim, scope: Scope) -> tuple[Dim, Dim] | None:
    """The least and greatest value of an affine index over independent loops; None if it is not that simple."""
    const, parts = terms(entry)
    least: Dim = const
    most: Dim = const
    loops = {each.var: each for each in scope.loops}
    for coefficient, atom in parts:
        if not isinstance(atom, Symbol):
            return None
        each = loops.get(atom.name)
        if each is None:
            least = least + coefficient * of_atom(atom)
            most = most + coefficient * of_atom(atom)
            continue
        names = symbols(each.count) | symbols(each.first)
        if names & loops.keys() or each.count == 0 or not _affine(each.count):
            return None
        ends = (each.first, each.first + each.step * (each.count - 1))
        low, high = ends if coefficient > 0 else ends[::-1]
        least, most = least + coefficient * low, most + coefficient * high
    return least, most


def _affine(value: Dim) -> bool:
    return all(isinstance(atom, Symbol) for _, atom in terms(value)[1])


def check_conflicts(scope: Scope, stmt: Store, held: Held) -> None:
    """IRError if parallel iterations around a plain store write the same element.

    Where the address is not proven to tell iterations apart, iterations are tried; what data or a condition decides
    is refused without proof or left alone, respectively.
    """
    if stmt.combine != "set":
        return
    around = scope.loops[held.depth :]
    first = next((k for k, each in enumerate(around) if each.parallel and each.count != 1), None)
    if first is None:
        return
    same = _undetermined(scope, stmt, held, held.depth + first)
    for place in range(held.depth + first, len(scope.loops)):
        each = scope.loops[place]
        if each.var not in same or each.var not in _undetermined(scope, stmt, held, place):
            continue
        if any(isinstance(e, Scalar) for e in stmt.index) or collides(scope, stmt, place):
            why = f"iterations of {each.var} may store to the same element of {stmt.buffer}"
            raise scope.fault(stmt, why)


def collides(scope: Scope, stmt: Store, place: int) -> bool:
    """Whether two iterations of the loop at `place` store to one element, among those tried.

    Dimensions are small, loops outside stand at their start, long loops are cut short.
    """
    if scope.guarded:
        return False
    table: dict[str, Array] = {name: np.asarray([_size(scope, name)]) for name in _free(scope)}
    for depth, each in enumerate(scope.loops):
        count = np.maximum(index_array(each.count, table), 0)
        count = np.broadcast_to(count, _points(table))
        count = np.minimum(count, max(2, POINTS // len(count)) if depth >= place else 1)
        rows = np.repeat(np.arange(len(count)), count)
        number = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        table = {
            name: values[rows] if len(values) > 1 else values for name, values in table.items()
        }
        first = np.broadcast_to(index_array(each.first, table), rows.shape)
        table[each.var] = first + each.step * number
    entries = [
        np.broadcast_to(index_array(e, table), _points(table))
        for e in stmt.index
        if not isinstance(e, Scalar)
    ]
    if not entries or not _points(table)[0]:
        return bool(_points(table)[0] > 1)
    _, address = np.unique(np.stack(entries), axis=1, return_inverse=True)
    moving = np.broadcast_to(table[scope.loops[place].var], _points(table))
    order = np.lexsort((moving, address.reshape(-1)))
    address, moving = address.reshape(-1)[order], moving[order]
    return bool(np.any((address[1:] == address[:-1]) & (moving[1:] != moving[:-1])))


def _points(table: dict[str, Array]) -> tuple[int]:
    return (max((len(values) for values in table.values()), default=1),)


def _free(scope: Scope) -> set[str]:
    """Dimensions in the extents of loops and in the shapes of buffers."""
    found = set(scope.dims or ())
    for each in scope.loops:
        found |= symbols(each.count) | symbols(each.first)
    return found - {each.var for each in scope.loops}


def _size(scope: Scope, name: str) -> int:
    low, high = scope.ranges.get(name, (1, None))
    least = low if isinstance(low, int) else 1
    return max(least, min(high, TYPICAL) if isinstance(high, int) else TYPICAL)


def _undetermined(scope: Scope, stmt: Store, held: Held, depth: int) -> set[str]:
    """Parallel variables from a depth on that the stored address does not determine."""
    entries = tuple(e for e in stmt.index if not isinstance(e, Scalar))
    parallel = {each.var for each in scope.loops[depth:] if each.parallel}
    return untold(scope, held, entries, depth, _marks(scope, stmt)) & parallel


def _marks(scope: Scope, stmt: Store) -> tuple[Dim, ...]:
    """What a guard requires to be the number found in a constant place of the stored element: equal for equal ones."""
    found: list[Dim] = []
    for condition in scope.conditions:
        if isinstance(condition, Call) and condition.fn == "eq":
            for mark, number in (condition.args, condition.args[::-1]):
                if isinstance(number, Index) and _is_mark(scope, mark, stmt):
                    found.append(number.dim)
    return tuple(found)


def _is_mark(scope: Scope, value: Scalar, stmt: Store) -> bool:
    """Whether a value is what nobody writes at a place that the stored element's index tells."""
    if not isinstance(value, Load) or scope.buffers[value.buffer].access is not Access.IN:
        return False
    return {*value.index} <= {*stmt.index}


def untold(
    scope: Scope, held: Held, entries: tuple[Dim, ...], depth: int, marks: tuple[Dim, ...] = ()
) -> set[str]:
    """Variables from a depth on that run more than once and do not follow from index entries of `held`.

    First which variables follow from the address (and from `marks`, which are equal where addresses are), spans taken
    as a whole; then which loops follow from those, spans written as their first element and a local number.
    """
    inner = scope.loops[depth:]
    known = [*_address(held, entries), *marks]
    ranges = {**scope.ranges, **{each.var: (0, reach_of(each, scope)) for each in inner}}
    whole = determined(known, {each.var for each in inner}, ranges)
    env, local, _ = spread(scope, depth)
    apart = tuple(substitute(e, env) for e in entries)
    told = (substitute(e, env) for e in marks)
    known = [*_address(held, apart), *told, *(env[name] for name in whole)]
    found = determined(known, {f"{each.var}'" for each in inner}, local)
    # A loop that cannot run twice, whatever its dimensions, has no iterations to tell apart.
    several = {each.var for each in inner if not _runs_once(each, scope)}
    return {var for var in several if f"{var}'" not in found}


def _runs_once(each: Around, scope: Scope) -> bool:
    most = bounds(each.count, scope.ranges)[1]
    return each.count == 1 or reach_of(each, scope) == 0 or (most is not None and most <= 1)


def _address(held: Held, entries: tuple[Dim, ...]) -> list[Dim]:
    """What an address tells: its entries, and the offset they give together."""
    if len(entries) != len(held.shape):
        return list(entries)
    offset: Dim = 0
    for extent, entry in zip(held.shape, entries, strict=True):
        offset = offset * extent + entry
    return [*entries, held.layout.offset(held.shape, entries), offset]


def reach_of(each: Around, scope: Scope) -> Dim | None:
    """The greatest value of an iteration's variable, in dimensions only; None if it is not found."""
    loops = {other.var for other in scope.loops}
    counts: tuple[Dim, ...] = (each.count,)
    _, parts = terms(each.count)
    if len(parts) == 1 and isinstance(parts[0][1], Min) and each.count == of_atom(parts[0][1]):
        counts = parts[0][1].args
    tops = (simplify(each.first + each.step * (count - 1), scope.ranges) for count in counts)
    return min((t for t in tops if not symbols(t) & loops), key=_most(scope), default=None)


def _most(scope: Scope) -> Callable[[Dim], float]:
    """A value's upper bound, to compare by."""

    def most(value: Dim) -> float:
        high = bounds(value, scope.ranges)[1]
        return float("inf") if high is None else high

    return most
