"""Loads and stores of a kernel's parameters, and whether a load comes before the store that overwrites its element.

Not here: indices inside their buffers, stores of parallel iterations to one element (verify_access.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from unistack_aot.base.symbolic import Dim, Ranges, bounds, simplify, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import (
    Call,
    Index,
    IndexEntry,
    Lit,
    Scalar,
    index_symbols,
    loads,
    postorder,
)
from unistack_aot.mcir.nodes import (
    Attend,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Loop,
    Role,
    Space,
    Span,
    Stmt,
    Store,
    Stream,
    View,
    When,
)
from unistack_aot.mcir.transform import children, scalars
from unistack_aot.mcir.verify_access import untold
from unistack_aot.mcir.verify_scope import Around, Held, Scope, count_of

Path = tuple[tuple[int, int], ...]
"""The position of each statement around and of the own one, and which of the statement lists inside it."""


@dataclass(frozen=True, slots=True)
class Touch:
    """A load or store at `index`; `scope` holds the iterations around it.

    `whole`: a statement on tiles loads, in an order that is not told. `counts` says how many iterations surround what
    each statement on the path holds, `choices` the condition of those that take one of two branches; `fold` is the role
    of the fold whose values load.
    """

    buffer: str
    index: tuple[IndexEntry, ...]
    write: bool
    scope: Scope
    path: Path
    counts: tuple[int, ...]
    choices: tuple[Scalar | None, ...]
    fold: Role | None = None
    whole: bool = False


def touches(kernel: Kernel, ranges: Ranges) -> tuple[Touch, ...]:
    """Every load and store of the parameters, in order."""
    held = {p.name: Held(p.dtype, p.shape, Space.FAR, p.layout, p.access) for p in kernel.params}
    found: list[Touch] = []
    _visit(kernel.body, Scope(kernel, "kernel", held, {}, dict(ranges), None), (), (), (), found)
    return tuple(t for t in found if t.buffer in held)


def _visit(
    body: tuple[Stmt, ...],
    scope: Scope,
    path: Path,
    counts: tuple[int, ...],
    choices: tuple[Scalar | None, ...],
    found: list[Touch],
) -> None:
    for place, stmt in enumerate(body):
        inner = scope.inside(*_around(stmt))
        here = (*path, (place, 0))
        there = (*counts, len(inner.loops))
        role = stmt.role if isinstance(stmt, Fold) else None
        own = inner if isinstance(stmt, Fold) else scope
        for value in scalars(stmt):
            for load in loads(value):
                whole = isinstance(stmt, Attend)
                found.append(
                    Touch(load.buffer, load.index, False, own, here, there, choices, role, whole)
                )
        for view in _views(stmt):
            found.append(
                Touch(view.buffer, view.index, False, scope, here, there, choices, whole=True)
            )
        if isinstance(stmt, Store):
            found.append(Touch(stmt.buffer, stmt.index, True, scope, here, there, choices))
        chosen = stmt.condition if isinstance(stmt, When) else None
        for branch, part in enumerate(children(stmt)):
            _visit(part, inner, (*path, (place, branch)), there, (*choices, chosen), found)


def _around(stmt: Stmt) -> tuple[Around, ...]:
    """The iterations of what a statement holds."""

    def span(each: Span) -> Around:
        return Around(each.var, Role.VECTOR, each.first, 1, each.extent)

    match stmt:
        case Loop():
            count = count_of(stmt.extent, stmt.step)
            return (Around(stmt.var, stmt.role, 0, stmt.step, count),)
        case Stream():
            count = count_of(stmt.extent, stmt.step)
            return (Around(stmt.var, Role.SEQ, 0, stmt.step, count),)
        case Fold():
            return tuple(Around(a.var, None, 0, 1, a.extent) for a in stmt.axes)
        case Drain():
            return span(stmt.rows), span(stmt.cols)
        case Attend():
            values = Around(stmt.values.var, Role.VECTOR, 0, 1, stmt.values.extent)
            return span(stmt.rows), values
        case _:
            return ()


def _views(stmt: Stmt) -> tuple[View, ...]:
    match stmt:
        case Contract():
            return stmt.a, stmt.b
        case Attend():
            return stmt.q, stmt.k, stmt.v
        case Fill():
            return (stmt.source,)
        case _:
            return ()


def around_both(load: Touch, store: Touch) -> int:
    """How many iterations surround both: those of the statements that hold both."""
    same = sum(
        1
        for _ in takewhile(
            lambda pair: pair[0] == pair[1], zip(load.path, store.path, strict=False)
        )
    )
    if load.path == store.path:
        return len(store.scope.loops)
    return load.counts[same - 1] if same else 0


def elsewhere(load: Touch, store: Touch) -> bool:
    """Whether the two certainly never mean the same element: some axis keeps their indices apart."""
    if load.whole:
        return False
    for mine, theirs in zip(load.index, store.index, strict=False):
        if isinstance(mine, Scalar) or isinstance(theirs, Scalar):
            continue
        low, high = bounds(simplify(mine, load.scope.ranges), load.scope.ranges)
        least, most = bounds(simplify(theirs, store.scope.ranges), store.scope.ranges)
        if (high is not None and least is not None and high < least) or (
            low is not None and most is not None and most < low
        ):
            return True
    return False


def confused(load: Touch, store: Touch) -> tuple[Around, ...]:
    """The common iterations that may differ although both mean the same element.

    Entries of the index that are the same function of common iterations are equal only where those are.
    """
    depth = around_both(load, store)
    outer = replace(store.scope, loops=store.scope.loops[:depth])
    hidden = {a.var for t in (load, store) for a in t.scope.loops[depth:]}
    known: list[Dim] = [
        mine
        for mine, theirs in zip(load.index, store.index, strict=False)
        if not isinstance(mine, Scalar) and mine == theirs and not symbols(mine) & hidden
    ]
    names = untold(outer, store.scope.buffers[store.buffer], tuple(known), 0)
    return tuple(a for a in outer.loops if a.var in names)


def read_first(kernel: Kernel, load: Touch, store: Touch) -> Yes | No:
    """Whether every element is loaded before the store overwrites it, whatever runs at the same time."""
    if load.whole:
        return No("a statement on tiles reads it")
    if elsewhere(load, store):
        return YES
    if others := confused(load, store):
        return No(f"iterations of {others[0].var} may read what others overwrite")
    if load.path > store.path and load.path != store.path:
        return No("it is read after the store")
    depth = around_both(load, store)
    apart = (*load.scope.loops[depth:], *store.scope.loops[depth:])
    if not kernel.group or not apart or load.fold is Role.GROUP:
        return YES
    if load.fold is Role.LANE and not any(a.role is Role.GROUP for a in apart):
        return YES
    return No("workers do not wait for each other between load and store")


def updates(kernel: Kernel, source: str, result: str, ranges: Ranges) -> Yes | No:
    """Whether `result` may take the memory of `source`: each element is read before it is overwritten."""
    found = touches(kernel, ranges)
    stores = [t for t in found if t.write and t.buffer == result]
    if any(not t.write and t.buffer == result for t in found):
        return No(f"{result} is read too")
    for load in (t for t in found if not t.write and t.buffer == source):
        for store in stores:
            verdict = read_first(kernel, load, store)
            if isinstance(verdict, No):
                return verdict
    return YES


def races(kernel: Kernel, ranges: Ranges) -> Mapping[str, str]:
    """Buffers of which an iteration may overwrite an element that another one, at the same time, reads; and why."""
    found = touches(kernel, ranges)
    result: dict[str, str] = {}
    for store in (t for t in found if t.write and t.buffer not in result):
        for load in (t for t in found if not t.write and t.buffer == store.buffer):
            if load.whole:
                result[store.buffer] = f"a statement on tiles reads {store.buffer}, which is stored"
                break
            if elsewhere(load, store):
                continue
            several = [a for a in confused(load, store) if a.parallel]
            if several and not _other_turn(load, store, several[0]):
                others = f"elements of {store.buffer} that others overwrite"
                result[store.buffer] = f"iterations of {several[0].var} may read {others}"
    return result


def _other_turn(load: Touch, store: Touch, parallel: Around) -> bool:
    """Whether both never happen to one element in an iteration of the ordered loops around a parallel one.

    y[t - 1] and y[t] differ; of the branches of a choice that depends on the ordered loops alone, one runs.
    """
    ordered: set[str] = set()
    for around in store.scope.loops:
        if around is parallel:
            break
        if not around.parallel:
            ordered.add(around.var)
    moving = {a.var for t in (load, store) for a in t.scope.loops} - ordered
    if _one_of(load, store, moving):
        return True
    pairs = zip(load.index, store.index, strict=False)
    return any(
        not isinstance(mine, Scalar)
        and not isinstance(theirs, Scalar)
        and not symbols(mine) & moving
        and isinstance(gap := simplify(mine - theirs, store.scope.ranges), int)
        and gap != 0
        for mine, theirs in pairs
    )


def _one_of(load: Touch, store: Touch, moving: set[str]) -> bool:
    """Whether the two are in the two branches of a choice by index values in which nothing of `moving` occurs."""
    for mine, theirs, choice in zip(load.path, store.path, load.choices, strict=False):
        if mine == theirs:
            continue
        if choice is None or mine[0] != theirs[0]:
            return False
        plain = all(isinstance(node, Call | Index | Lit) for node in postorder(choice))
        return plain and not index_symbols(choice) & moving
    return False
