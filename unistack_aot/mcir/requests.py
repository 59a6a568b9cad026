"""What the workers of a group ask of far memory: each access as often as it is executed, for given sizes.

Not here: each element once (counts.py), what lies near or in caches (the machine's business).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, symbol, symbols
from unistack_aot.ir.evaluate import Array, evaluate
from unistack_aot.ir.scalar import (
    Call,
    Index,
    Load,
    Name,
    Scalar,
    children,
    index_symbols,
    loads,
    postorder,
    transform,
)
from unistack_aot.mcir.elements import index_array
from unistack_aot.mcir.nodes import (
    Attend,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Let,
    Loop,
    Role,
    Span,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    View,
    When,
)
from unistack_aot.mcir.transform import scalars, uses_lanes, walk


@dataclass(frozen=True, slots=True)
class Requests:
    """Bytes that loads and stores ask for; `exact` unless data decides whether an access happens (then: at most)."""

    read: int
    written: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Points:
    """Iterations: the index values that they run through, and how many of one worker each row stands for."""

    table: Mapping[str, Array]
    times: Array

    def value(self, dim: Dim) -> Array:
        """An index expression at every row."""
        return np.broadcast_to(index_array(dim, self.table), self.times.shape)

    def around(self, var: str, first: Dim, count: Array, step: int, told: bool) -> Points:
        """`count` iterations for each of these; `told`: rows apart, because something depends on `var`."""
        if not told:
            return replace(self, times=self.times * count)
        rows = np.repeat(np.arange(len(count)), count)
        number = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        start = self.value(first)[rows]
        table = {
            name: values[rows] if values.ndim else values for name, values in self.table.items()
        }
        return Points({**table, var: start + step * number}, self.times[rows])

    def where(self, holds: Array) -> Points:
        """The rows at which a condition holds."""
        held = np.flatnonzero(np.broadcast_to(holds, self.times.shape))
        table = {
            name: values[held] if values.ndim else values for name, values in self.table.items()
        }
        return Points(table, self.times[held])

    @property
    def total(self) -> int:
        """Iterations of all rows."""
        return int(self.times.sum())


@dataclass(slots=True)
class Frame:
    """A loop around statements: what changes in it, the points before it, its steps, the workers that share them."""

    bound: frozenset[str]
    before: Points
    steps: Array
    workers: int = 1
    still: bool = True  # what does not change may be loaded before it
    loaded: set[Load] = field(default_factory=set[Load])


@dataclass(slots=True)
class Counting:
    """One kernel being counted."""

    kernel: Kernel
    lanes: int
    told: frozenset[str]
    stored: frozenset[str]
    frames: list[Frame] = field(default_factory=list[Frame])
    values: dict[str, Scalar] = field(default_factory=dict[str, Scalar])
    read: int = 0
    written: int = 0
    exact: bool = True

    # --- statements --------------------------------------------------------------------------------------

    def body(self, stmts: Iterable[Stmt], points: Points, workers: int) -> None:
        """Statements that `workers` run together at each point."""
        for stmt in stmts:
            self.statement(stmt, points, workers)

    def statement(self, stmt: Stmt, points: Points, workers: int) -> None:
        """One statement."""
        match stmt:
            case Let():
                self.scalar(stmt.value, points)
                if not loads(stmt.value):
                    self.values[stmt.name] = self.known(stmt.value)
            case Store():
                self.store(stmt, points)
            case Loop():
                self.loop(stmt, points, workers)
            case Stream():
                axis = Span(stmt.var, 0, stmt.extent)
                inner = self.enter(axis, points, 1, stmt.body, stmt.step)
                self.leave(stmt.body, inner, workers)
            case Fold():
                self.fold(stmt, points, workers)
            case When():
                self.when(stmt, points, workers)
            case Fill():
                self.view(stmt.source, (stmt.rows, stmt.cols), points, workers)
            case Drain():
                inner = self.spans((stmt.rows, stmt.cols), points, workers)
                self.results(stmt.body, inner, stmt.cols, stmt.run)
            case Attend():
                self.attend(stmt, points, workers)
            case Contract() | Tile() | Sync():
                pass

    def store(self, stmt: Store, points: Points) -> None:
        """An overwriting store; combining ones are atomic: they count apart, with what they read."""
        for value in scalars(stmt):
            self.scalar(value, points)
        if stmt.combine == "set" and (size := self.bytes_of(stmt.buffer)):
            self.written += points.total * size

    def loop(self, loop: Loop, points: Points, workers: int) -> None:
        """Iterations in turn, or each by one of the workers (with all its lanes, if the body shares them)."""
        share = 1
        if loop.role is Role.GROUP and uses_lanes(loop.body):
            share = self.kernel.group // self.lanes
        elif loop.role in (Role.GROUP, Role.LANE):
            share = workers
        axis = Span(loop.var, 0, loop.extent)
        inner = self.enter(axis, points, share, loop.body, loop.step)
        self.frames[-1].still &= loop.role is not Role.GRID  # each group loads for itself
        self.leave(loop.body, inner, workers // share)

    def fold(self, fold: Fold, points: Points, workers: int) -> None:
        """The points of a fold; the first axis shared by the workers if it has their role."""
        shared = fold.role in (Role.GROUP, Role.LANE)
        for place, axis in enumerate(fold.axes):
            share = workers if shared and place == 0 else 1
            points = self.enter(Span(axis.var, 0, axis.extent), points, share, fold.body)
        self.body(fold.body, points, 1 if shared else workers)
        for value in fold.values:
            self.scalar(value, points)
        del self.frames[-len(fold.axes) :]

    def when(self, stmt: When, points: Points, workers: int) -> None:
        """Both sides, each at the points that take it."""
        self.scalar(stmt.condition, points)
        yes, no = self.sides(stmt.condition, points)
        for side, body in ((yes, stmt.body), (no, stmt.otherwise)):
            self.frames.append(Frame(frozenset(), points, np.ones_like(points.times), still=False))
            self.leave(body, side, workers)

    def attend(self, stmt: Attend, points: Points, workers: int) -> None:
        """Queries once per block of rows, keys and values too; one score per row and key; results per row and value."""
        deep, wide = (
            Span(stmt.depth.var, 0, stmt.depth.extent),
            Span(stmt.values.var, 0, stmt.values.extent),
        )
        keys = Span(stmt.keys.var, 0, stmt.keys.extent)
        for view, spans in (
            (stmt.q, (stmt.rows, deep)),
            (stmt.k, (keys, deep)),
            (stmt.v, (keys, wide)),
        ):
            self.view(view, spans, points, workers)
        self.scalar(stmt.score, self.spans((stmt.rows, keys), points, workers))
        self.results(stmt.body, self.spans((stmt.rows, wide), points, workers), wide, stmt.run)

    def results(self, body: tuple[Stmt, ...], points: Points, cols: Span, run: int) -> None:
        """Statements for each element of a tile, `run` neighbouring columns at once."""
        if cols.var in self.told:
            before = points.where(
                (points.value(symbol(cols.var)) - points.value(cols.first)) % run == 0
            )
        else:
            before = replace(points, times=points.times // run)
        bound = frozenset((cols.var, *names_of(body)))
        self.frames.append(Frame(frozenset(), points, np.ones_like(points.times), still=False))
        self.frames.append(Frame(bound, before, np.full_like(before.times, run)))
        self.leave(body, points, 1)
        self.frames.pop()

    def view(self, view: View, spans: tuple[Span, Span], points: Points, workers: int) -> None:
        """A rectangle of a buffer that the workers copy together, without what lies outside."""
        inner = self.spans(spans, points, workers)
        if view.within is not None:
            self.scalar(view.within, inner)
            inner, _ = self.sides(view.within, inner)
        self.read += inner.total * self.bytes_of(view.buffer)

    def spans(self, spans: Iterable[Span], points: Points, workers: int) -> Points:
        """The elements of a rectangle, each by one of the workers."""
        inner = replace(points, times=points.times // workers)
        for span in spans:
            count = np.maximum(inner.value(span.extent), 0)
            inner = inner.around(span.var, span.first, count, 1, span.var in self.told)
        return inner

    # --- loops -------------------------------------------------------------------------------------------

    def enter(
        self, axis: Span, points: Points, share: int, body: tuple[Stmt, ...], step: int = 1
    ) -> Points:
        """The points inside a loop whose iterations `share` workers divide; noted as the innermost frame."""
        steps = np.maximum(-(-points.value(axis.extent) // step), 0)
        bound = frozenset((axis.var, *names_of(body)))
        still = not any(isinstance(s, Sync) for s in walk(body))
        self.frames.append(Frame(bound, points, steps, share, still))
        inside = replace(points, times=points.times // share)
        return inside.around(axis.var, axis.first, steps, step, axis.var in self.told)

    def leave(self, body: tuple[Stmt, ...], points: Points, workers: int) -> None:
        """The statements of the innermost frame, which ends."""
        self.body(body, points, workers)
        self.frames.pop()

    # --- scalars -----------------------------------------------------------------------------------------

    def scalar(self, value: Scalar, points: Points) -> None:
        """The loads of a value: those of a branch where it is taken."""
        for load, conditions in loaded(value).items():
            size = self.bytes_of(load.buffer)
            if not size:
                continue
            if () in conditions:
                self.read += self.unconditional(load, points) * size
                continue
            for path in conditions:
                held = points
                for condition, side in path:
                    held = self.sides(condition, held)[0 if side else 1]
                self.read += held.total * size

    def unconditional(self, load: Load, points: Points) -> int:
        """How often a load is executed: once before the loops in which neither its place nor its buffer changes."""
        if any(load in frame.loaded for frame in self.frames):
            return 0
        needed = index_symbols(load) | {n.name for n in postorder(load) if isinstance(n, Name)}
        total = points.total
        place = len(self.frames)
        part = 1.0  # of the workers
        while place and load.buffer not in self.stored:
            frame = self.frames[place - 1]
            if not frame.still or frame.bound & needed:
                break
            active = np.minimum(frame.steps, frame.workers) / frame.workers
            total = round(float((frame.before.times * active).sum()) * part)
            part *= float(active.max(initial=0))
            place -= 1
        if place:
            self.frames[place - 1].loaded.add(load)
        return total

    def sides(self, condition: Scalar, points: Points) -> tuple[Points, Points]:
        """The points at which a condition holds, and the others; all of them twice if data decides."""
        known = self.known(condition)
        if any(isinstance(node, Load | Name) for node in postorder(known)):
            self.exact = False
            return points, points
        holds = evaluate(known, index=points.value)
        return points.where(holds), points.where(~holds)

    def known(self, value: Scalar) -> Scalar:
        """The value with the names of index computations replaced by those."""
        return transform(value, lambda v: self.values.get(v.name) if isinstance(v, Name) else None)

    def bytes_of(self, buffer: str) -> int:
        """Bytes of an element of a parameter; 0 for what lies near."""
        found = next((p for p in self.kernel.params if p.name == buffer), None)
        return 0 if found is None else found.dtype.bytes


Path = tuple[tuple[Scalar, bool], ...]


def loaded(value: Scalar) -> dict[Load, set[Path]]:
    """The loads of a value, each with the ways to it: which conditions hold and which fail there."""
    found: dict[Load, set[Path]] = {}
    stack: list[tuple[Scalar, Path]] = [(value, ())]
    seen: set[tuple[Scalar, Path]] = set()
    while stack:
        node, path = stack.pop()
        if (node, path) in seen:
            continue
        seen.add((node, path))
        if isinstance(node, Load):
            found.setdefault(node, set()).add(path)
        match node:
            case Call(fn="where", args=(condition, yes, no)) if loads(yes) or loads(no):
                sides = ((yes, True), (no, False))
            case Call(fn="and" | "or", args=(condition, later)) if loads(later):
                sides = ((later, node.fn == "and"),)  # the first operand may decide
            case _:
                stack += [(child, path) for child in children(node)]
                continue
        stack.append((condition, path))
        stack += [(branch, (*path, (condition, holds))) for branch, holds in sides]
    return {
        load: {p for p in paths if not any(p[:k] in paths for k in range(len(p)))}
        for load, paths in found.items()
    }


def requests(kernel: Kernel, dims: Mapping[str, int], lanes: int) -> Requests:
    """The traffic of one launch of a kernel whose loops have the roles of a machine with `lanes` lanes per worker."""
    if not kernel.group:
        raise IRError("requests are counted of kernels for groups of workers")
    stored = frozenset(s.buffer for s in walk(kernel.body) if isinstance(s, Store))
    work = Counting(kernel, lanes, _told(kernel), stored)
    table = {name: np.asarray(size) for name, size in dims.items()}
    work.body(kernel.body, Points(table, np.full(1, kernel.group, np.int64)), kernel.group)
    return Requests(work.read, work.written, work.exact)


def names_of(body: tuple[Stmt, ...]) -> Iterator[str]:
    """What changes with each iteration of a body."""
    for stmt in walk(body):
        match stmt:
            case Let():
                yield stmt.name
            case Fold():
                yield from stmt.states
            case Drain():
                yield stmt.value
            case Attend():
                yield from (stmt.dot, stmt.out)
            case _:
                pass


def _told(kernel: Kernel) -> frozenset[str]:
    """Index variables on which an extent or a condition depends."""
    found: set[str] = set()
    for stmt in walk(kernel.body):
        for value in scalars(stmt):
            for node in postorder(value):
                if isinstance(node, Call) and node.fn in ("where", "and", "or"):
                    found |= _indices(node.args[0])
        match stmt:
            case Loop() | Stream():
                found |= symbols(stmt.extent)
            case Fold():
                found |= {name for a in stmt.axes for name in symbols(a.extent)}
            case When():
                found |= _indices(stmt.condition)
            case Let():
                found |= _indices(stmt.value)
            case Fill() | Drain() | Attend():
                found |= _of_tile(stmt)
            case _:
                pass
    return frozenset(found)


def _of_tile(stmt: Fill | Drain | Attend) -> set[str]:
    match stmt:
        case Fill():
            spans, views = (stmt.rows, stmt.cols), (stmt.source,)
        case Drain():
            spans, views = (stmt.rows, stmt.cols), ()
        case Attend():
            spans, views = (stmt.rows,), (stmt.q, stmt.k, stmt.v)
    found = {name for s in spans for e in (s.first, s.extent) for name in symbols(e)}
    for view in views:
        if view.within is not None:
            found |= _indices(view.within)
    return found


def _indices(value: Scalar) -> set[str]:
    return {name for n in postorder(value) if isinstance(n, Index) for name in symbols(n.dim)}
