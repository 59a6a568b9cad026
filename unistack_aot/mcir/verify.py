"""What a kernel must keep at every stage: names, types, indices, roles, distinct writes. Not here: programs."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from unistack_aot.base.dtypes import bool_, i64
from unistack_aot.base.symbolic import Dim, Ranges, symbols, text
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import (
    Call,
    Index,
    IndexEntry,
    Load,
    Name,
    Scalar,
    postorder,
)
from unistack_aot.mcir.monoids import MONOIDS
from unistack_aot.mcir.nodes import (
    Access,
    Attend,
    Axis,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Let,
    Loop,
    Role,
    Space,
    Span,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    View,
    When,
)
from unistack_aot.mcir.stages.stage import Stage
from unistack_aot.mcir.text import COMBINE
from unistack_aot.mcir.touches import races
from unistack_aot.mcir.transform import scalars
from unistack_aot.mcir.verify_access import check_conflicts, check_inside, unguarded_loads
from unistack_aot.mcir.verify_scope import Around, Held, Scope, count_of


def verify_kernel(
    kernel: Kernel,
    stage: Stage | None = None,
    ranges: Ranges | None = None,
    name: str = "kernel",
    dims: frozenset[str] | None = None,
) -> None:
    """Check a kernel; IRError that shows the statement with its neighbours.

    `ranges` bounds dimension symbols; `dims` are the symbols that have a value when it runs (None: its shapes').
    """
    buffers = {p.name: Held(p.dtype, p.shape, Space.FAR, p.layout, p.access) for p in kernel.params}
    known = frozenset[str]().union(*(symbols(d) for p in kernel.params for d in p.shape))
    scope = Scope(kernel, name, buffers, {}, dict(ranges or {}), known if dims is None else dims)
    _params(kernel, stage, scope)
    _body(kernel.body, scope, stage)
    for why in races(kernel, scope.ranges).values():
        raise scope.fault(None, why)


def _params(kernel: Kernel, stage: Stage | None, scope: Scope) -> None:
    if len(scope.buffers) != len(kernel.params):
        raise scope.fault(None, "two parameters have one name")
    for param in kernel.params:
        halo, block = param.layout.halo, param.layout.block
        if halo and len(halo) != len(param.shape):
            raise scope.fault(None, f"the halo of {param.name} has {len(halo)} axes")
        if block is not None and not 0 <= block[0] < len(param.shape):
            raise scope.fault(None, f"{param.name} has no axis {block[0]} to block")
        if stage is not None and not stage.layouts and not param.layout.plain:
            raise scope.fault(None, f"{param.name} has a layout: a {stage.name} program has none")
    if kernel.reinterprets and (len(kernel.inputs) != 1 or len(kernel.outputs) != 1):
        raise scope.fault(None, "a kernel that reinterprets has one input and one result")


def _body(body: tuple[Stmt, ...], scope: Scope, stage: Stage | None) -> None:
    scope = replace(scope, siblings=body)
    for stmt in body:
        if stage is not None:
            _legal(stmt, scope, stage)
        scope = _statement(stmt, scope, stage)


def _legal(stmt: Stmt, scope: Scope, stage: Stage) -> None:
    if type(stmt) not in stage.statements:
        word = type(stmt).__name__.lower()
        raise scope.fault(stmt, f"a {stage.name} program has no {word} statements")
    if isinstance(stmt, Loop | Fold) and stmt.role not in stage.roles:
        raise scope.fault(stmt, f"a {stage.name} program has no role {stmt.role.value}")
    for rule in stage.rules:
        if not (found := rule(scope.kernel, stmt)):
            raise scope.fault(stmt, f"{stage.name}: {found}")


def _statement(stmt: Stmt, scope: Scope, stage: Stage | None) -> Scope:
    """Check one statement; the scope for those after it."""
    match stmt:
        case Let():
            _values(stmt, scope)
            _bind(stmt, scope, stmt.name)
            scope.names[stmt.name] = stmt.value.dtype
        case Store():
            _store(stmt, scope)
        case Fold():
            _fold(stmt, scope, stage)
        case Loop():
            if stmt.step < 1:
                raise scope.fault(stmt, f"a loop of step {stmt.step}")
            around = _axis(stmt, scope, stmt.var, stmt.extent, stmt.role, stmt.step)
            _inner(stmt.body, stmt, scope.inside(around), stage)
        case Stream():
            if stmt.step < 1 or stmt.depth < 1:
                raise scope.fault(stmt, "a stream needs a step and a depth of at least 1")
            around = _axis(stmt, scope, stmt.var, stmt.extent, Role.SEQ, stmt.step)
            _inner(stmt.body, stmt, scope.inside(around), stage)
        case Tile():
            _bind(stmt, scope, stmt.name)
            _dims(stmt, scope, *stmt.shape)
            held = Held(stmt.dtype, stmt.shape, stmt.space, depth=_owned(stmt, scope))
            return replace(scope.with_buffer(stmt.name, held), siblings=scope.siblings)
        case Fill():
            _fill(stmt, scope)
        case Contract():
            _contract(stmt, scope)
        case Drain():
            _drain(stmt, scope, stage)
        case Attend():
            _attend(stmt, scope, stage)
        case When():
            _values(stmt, scope)
            if stmt.condition.dtype is not bool_:
                raise scope.fault(stmt, f"the condition is {stmt.condition.dtype}")
            _inner(stmt.body, stmt, scope.guard(stmt.condition), stage)
            _inner(stmt.otherwise, stmt, scope.guard(), stage)
        case Sync():
            pass
        case _:
            assert_never(stmt)
    return scope


def _owned(tile: Tile, scope: Scope) -> int:
    """From which loop on iterations share a tile: a unit's workers share near tiles."""
    return len(scope.loops) if tile.space is not Space.FAR else 0


def _inner(body: tuple[Stmt, ...], stmt: Stmt, scope: Scope, stage: Stage | None) -> None:
    _body(body, scope.within(body, stmt), stage)


def _bind(stmt: Stmt, scope: Scope, name: str) -> None:
    if name in scope.names or name in scope.buffers or any(a.var == name for a in scope.loops):
        raise scope.fault(stmt, f"{name} is bound already")


def _dims(stmt: Stmt, scope: Scope, *values: Dim) -> None:
    """Every index symbol is a loop's variable in scope or a dimension."""
    if scope.dims is None:
        return
    loops = {a.var for a in scope.loops}
    for value in values:
        for name in sorted(symbols(value) - loops - scope.dims):
            raise scope.fault(
                stmt, f"{name} in {text(value)} is no loop variable or dimension here"
            )


def _axis(
    stmt: Stmt, scope: Scope, var: str, extent: Dim, role: Role | None, step: int = 1
) -> Around:
    _bind(stmt, scope, var)
    _dims(stmt, scope, extent)
    return Around(var, role, 0, step, count_of(extent, step))


def _span(stmt: Stmt, scope: Scope, span: Span) -> Around:
    _bind(stmt, scope, span.var)
    _dims(stmt, scope, span.first, span.extent)
    return Around(span.var, Role.VECTOR, span.first, 1, span.extent)


def _access(stmt: Stmt, scope: Scope, name: str, index: tuple[IndexEntry, ...]) -> Held:
    held = scope.buffers.get(name)
    if held is None:
        raise scope.fault(stmt, f"{name} is no parameter or tile in scope")
    if len(index) != len(held.shape):
        raise scope.fault(stmt, f"{name} has {len(held.shape)} axes, indexed with {len(index)}")
    for entry in index:
        if not isinstance(entry, Scalar):
            _dims(stmt, scope, entry)
        elif entry.dtype is not i64:
            raise scope.fault(stmt, f"an index of {name} is {entry.dtype}, not i64")
    return held


def _values(stmt: Stmt, scope: Scope) -> None:
    for value in scalars(stmt):
        _scalar(stmt, scope, value)


def _scalar(stmt: Stmt, scope: Scope, value: Scalar) -> None:
    for node in postorder(value):
        match node:
            case Name():
                if node.name not in scope.names:
                    raise scope.fault(stmt, f"{node.name} is not bound here")
                if scope.names[node.name] is not node.dtype:
                    was = scope.names[node.name]
                    raise scope.fault(stmt, f"{node.name} is {was}, used as {node.dtype}")
            case Index():
                _dims(stmt, scope, node.dim)
            case Load():
                _load(stmt, scope, node)
            case Call():
                wanted = FUNCTIONS[node.fn].result([a.dtype for a in node.args])
                if wanted is not node.dtype:
                    raise scope.fault(stmt, f"{node.fn} gives {wanted}, not {node.dtype}")
            case _:
                pass
    if not scope.guarded:
        for load in unguarded_loads(value):
            check_inside(scope, stmt, load.buffer, load.index)


def _load(stmt: Stmt, scope: Scope, load: Load) -> None:
    held = _access(stmt, scope, load.buffer, load.index)
    if held.dtype is not load.dtype:
        raise scope.fault(stmt, f"{load.buffer} holds {held.dtype}, loaded as {load.dtype}")
    stored = held.access is Access.OUT and not _writes(scope, load.buffer)
    if stored:
        raise scope.fault(stmt, f"{load.buffer} is read but never written here")


def _writes(scope: Scope, buffer: str) -> bool:
    return scope.buffers[buffer].access is not Access.IN


def _store(stmt: Store, scope: Scope) -> None:
    _values(stmt, scope)
    held = _access(stmt, scope, stmt.buffer, stmt.index)
    if held.access is Access.IN:
        raise scope.fault(stmt, f"{stmt.buffer} is an input")
    if held.dtype is not stmt.value.dtype:
        raise scope.fault(stmt, f"{stmt.buffer} holds {held.dtype}, stored {stmt.value.dtype}")
    if stmt.combine not in COMBINE:
        raise scope.fault(stmt, f"values cannot be combined by {stmt.combine!r}")
    check_inside(scope, stmt, stmt.buffer, stmt.index)
    check_conflicts(scope, stmt, held)


def _fold(fold: Fold, scope: Scope, stage: Stage | None) -> None:
    inner = scope
    for axis in fold.axes:
        inner = inner.inside(_axis(fold, inner, axis.var, axis.extent, None))
    inner = inner.within(fold.body, fold)
    if fold.body:
        _body(fold.body, inner, stage)
    for stmt in fold.body:
        if isinstance(stmt, Let):
            inner.names[stmt.name] = stmt.value.dtype
    _values(fold, inner)
    monoid = MONOIDS.get(fold.monoid)
    if monoid is None:
        raise scope.fault(fold, f"there is no monoid {fold.monoid}")
    fields = monoid.fields(tuple(v.dtype for v in fold.values))
    if len(fields) != len(fold.states):
        raise scope.fault(fold, f"{fold.monoid} has {len(fields)} fields, not {len(fold.states)}")
    for name, dtype in zip(fold.states, fields, strict=True):
        _bind(fold, scope, name)
        scope.names[name] = dtype


def _view(stmt: Stmt, scope: Scope, view: View) -> Held:
    held = _access(stmt, scope, view.buffer, view.index)
    if view.rounded is not None and not (view.rounded.is_float and held.dtype.is_float):
        raise scope.fault(stmt, f"{view.buffer} of {held.dtype} is rounded to {view.rounded}")
    if view.within is None:
        check_inside(scope, stmt, view.buffer, view.index)
        return held
    if view.within.dtype is not bool_:
        raise scope.fault(stmt, f"the guard of {view.buffer} is {view.within.dtype}")
    _scalar(stmt, scope.guard(), view.within)
    return held


def _tile_of(stmt: Stmt, scope: Scope, name: str) -> Held:
    held = scope.buffers.get(name)
    if held is None or held.access is not None:
        raise scope.fault(stmt, f"{name} is no tile in scope")
    if len(held.shape) != 2:
        raise scope.fault(stmt, f"tile {name} has {len(held.shape)} axes, not 2")
    return held


def _fill(stmt: Fill, scope: Scope) -> None:
    held = _tile_of(stmt, scope, stmt.tile)
    if held.space is Space.REG:
        raise scope.fault(stmt, f"workers cannot fill {stmt.tile} together: it is in registers")
    inner = scope.inside(_span(stmt, scope, stmt.rows))
    _view(stmt, inner.inside(_span(stmt, inner, stmt.cols)), stmt.source)


def _contract(stmt: Contract, scope: Scope) -> None:
    if _tile_of(stmt, scope, stmt.acc).space is not Space.REG:
        raise scope.fault(stmt, f"the accumulator {stmt.acc} is not in registers")
    inner = scope.inside(_span(stmt, scope, stmt.rows))
    inner = inner.inside(_span(stmt, inner, stmt.cols))
    for axis in stmt.depth:
        inner = inner.inside(_axis(stmt, inner, axis.var, axis.extent, None))
    for view, others in ((stmt.a, stmt.cols), (stmt.b, stmt.rows)):
        _view(stmt, inner, view)
        if any(others.var in symbols(e) for e in view.index):
            raise scope.fault(stmt, f"operand {view.buffer} depends on {others.var}")


def _drain(stmt: Drain, scope: Scope, stage: Stage | None) -> None:
    held = _tile_of(stmt, scope, stmt.acc)
    inner = scope.inside(_span(stmt, scope, stmt.rows))
    inner = inner.inside(_span(stmt, inner, stmt.cols), names={stmt.value: held.dtype})
    _bind(stmt, scope, stmt.value)
    _inner(stmt.body, stmt, inner, stage)


def _attend(stmt: Attend, scope: Scope, stage: Stage | None) -> None:
    rows = scope.inside(_span(stmt, scope, stmt.rows))

    def axis(outer: Scope, each: Axis) -> Scope:
        return outer.inside(_axis(stmt, outer, each.var, each.extent, None))

    keyed = axis(rows, stmt.keys)
    _view(stmt, axis(rows, stmt.depth), stmt.q)
    _view(stmt, axis(keyed, stmt.depth), stmt.k)
    _view(stmt, axis(keyed, stmt.values), stmt.v)
    wide = stmt.score.dtype
    _scalar(stmt, replace(keyed, names={**scope.names, stmt.dot: wide}), stmt.score)
    values = Around(stmt.values.var, Role.VECTOR, 0, 1, stmt.values.extent)
    _bind(stmt, rows, stmt.out)
    _inner(stmt.body, stmt, rows.inside(values, names={stmt.out: wide}), stage)
