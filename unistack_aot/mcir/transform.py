"""Traversal and rewriting of kernel statements: map scalars, rename buffers and variables, collect loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from unistack_aot.base.dtypes import i64
from unistack_aot.base.symbolic import Dim, rename, substitute, symbol
from unistack_aot.ir.scalar import (
    Call,
    IndexEntry,
    Load,
    Name,
    Scalar,
    loads,
    postorder,
    substitute_indices,
    transform,
)
from unistack_aot.mcir.nodes import (
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
    Span,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    View,
    When,
)

Body: TypeAlias = tuple[Stmt, ...]


def children(stmt: Stmt) -> tuple[Body, ...]:
    """The statement lists directly inside a statement."""
    match stmt:
        case Loop() | Stream() | Drain() | Fold() | Attend():
            return (stmt.body,)
        case When():
            return stmt.body, stmt.otherwise
        case Let() | Store() | Tile() | Fill() | Contract() | Sync():
            return ()
        case _:
            assert_never(stmt)


def walk(body: Body) -> Iterator[Stmt]:
    """Every statement, outer before inner, in order."""
    for stmt in body:
        yield stmt
        for inner in children(stmt):
            yield from walk(inner)


def with_children(stmt: Stmt, bodies: tuple[Body, ...]) -> Stmt:
    """The same statement around other statement lists, as listed by `children`."""
    match stmt:
        case Loop() | Stream() | Drain() | Fold() | Attend():
            return replace(stmt, body=bodies[0])
        case When():
            return replace(stmt, body=bodies[0], otherwise=bodies[1])
        case Let() | Store() | Tile() | Fill() | Contract() | Sync():
            return stmt
        case _:
            assert_never(stmt)


def rewrite(body: Body, change: Callable[[Stmt], Stmt | Body | None]) -> Body:
    """Rewrite statements bottom-up; `change` may return a statement, several, or None to keep it."""
    result: list[Stmt] = []
    for stmt in body:
        inner = tuple(rewrite(part, change) for part in children(stmt))
        fresh = with_children(stmt, inner) if inner else stmt
        changed = change(fresh)
        if changed is None:
            result.append(fresh)
        elif isinstance(changed, tuple):
            result.extend(changed)
        else:
            result.append(changed)
    return tuple(result)


def scalars(stmt: Stmt) -> tuple[Scalar, ...]:
    """Scalars that a statement itself evaluates (not those of statements inside it)."""
    match stmt:
        case Let():
            return (stmt.value,)
        case Store():
            return (stmt.value, *(e for e in stmt.index if isinstance(e, Scalar)))
        case Fold():
            return stmt.values
        case When():
            return (stmt.condition,)
        case Contract():
            return tuple(v.within for v in (stmt.a, stmt.b) if v.within is not None)
        case Attend():
            return (stmt.score,)
        case Fill():
            return () if stmt.source.within is None else (stmt.source.within,)
        case Loop() | Stream() | Tile() | Drain() | Sync():
            return ()
        case _:
            assert_never(stmt)


def map_scalars(body: Body, change: Callable[[Scalar], Scalar]) -> Body:
    """Apply `change` to every scalar of every statement."""

    def entry(e: IndexEntry) -> IndexEntry:
        return change(e) if isinstance(e, Scalar) else e

    def view(v: View) -> View:
        return v if v.within is None else replace(v, within=change(v.within))

    def each(stmt: Stmt) -> Stmt | None:
        match stmt:
            case Let():
                return Let(stmt.name, change(stmt.value))
            case Store():
                index = tuple(entry(e) for e in stmt.index)
                return replace(stmt, index=index, value=change(stmt.value))
            case Fold():
                return replace(stmt, values=tuple(change(v) for v in stmt.values))
            case When():
                return replace(stmt, condition=change(stmt.condition))
            case Contract():
                return replace(stmt, a=view(stmt.a), b=view(stmt.b))
            case Fill():
                return replace(stmt, source=view(stmt.source))
            case Attend():
                return replace(stmt, score=change(stmt.score))
            case _:
                return None

    return rewrite(body, each)


def replace_loads(body: Body, change: Callable[[Load], Scalar | None]) -> Body:
    """Replace loads wherever they occur; None keeps a load."""

    def each(value: Scalar) -> Scalar:
        return transform(value, lambda v: change(v) if isinstance(v, Load) else None)

    return map_scalars(body, each)


def all_loads(body: Body) -> Iterator[Load]:
    """Every load of every statement."""
    for stmt in walk(body):
        for value in scalars(stmt):
            yield from loads(value)


def has_conditional_loads(body: Body) -> bool:
    """Whether some load is of an element that exists only where a condition holds."""
    return any(
        isinstance(stmt, When)
        or any(
            isinstance(node, Call) and node.fn == "where" and any(map(loads, node.args[1:]))
            for value in scalars(stmt)
            for node in postorder(value)
        )
        for stmt in walk(body)
    )


def uses_lanes(body: Body) -> bool:
    """Whether a body shares work among the lanes of a worker."""
    return any(isinstance(s, Loop | Fold) and s.role is Role.LANE for s in walk(body))


def rename_buffers(body: Body, names: Mapping[str, str]) -> Body:
    """Rename buffers and tiles in loads, stores, tile declarations and contractions."""

    def each(stmt: Stmt) -> Stmt | None:
        match stmt:
            case Store():
                return replace(stmt, buffer=names.get(stmt.buffer, stmt.buffer))
            case Tile():
                return replace(stmt, name=names.get(stmt.name, stmt.name))
            case Drain():
                return replace(stmt, acc=names.get(stmt.acc, stmt.acc))
            case Contract():
                return replace(
                    stmt,
                    acc=names.get(stmt.acc, stmt.acc),
                    a=replace(stmt.a, buffer=names.get(stmt.a.buffer, stmt.a.buffer)),
                    b=replace(stmt.b, buffer=names.get(stmt.b.buffer, stmt.b.buffer)),
                )
            case Attend():
                return replace(
                    stmt,
                    q=_rebound(stmt.q, names),
                    k=_rebound(stmt.k, names),
                    v=_rebound(stmt.v, names),
                )
            case Fill():
                source = replace(
                    stmt.source, buffer=names.get(stmt.source.buffer, stmt.source.buffer)
                )
                return replace(stmt, tile=names.get(stmt.tile, stmt.tile), source=source)
            case _:
                return None

    def load(value: Load) -> Scalar | None:
        fresh = names.get(value.buffer)
        return None if fresh is None else Load(fresh, value.index, value.dtype)

    return replace_loads(rewrite(body, each), load)


def _rebound(view: View, names: Mapping[str, str]) -> View:
    return replace(view, buffer=names.get(view.buffer, view.buffer))


def substitute_vars(body: Body, env: Mapping[str, IndexEntry]) -> Body:
    """Replace index variables (which `body` must not bind itself) by expressions."""
    dims = {k: v for k, v in env.items() if not isinstance(v, Scalar)}

    def dim(value: Dim) -> Dim:
        return substitute(value, dims)

    def each(stmt: Stmt) -> Stmt | None:
        match stmt:
            case Store():
                return replace(stmt, index=tuple(_entry(e, env) for e in stmt.index))
            case Fold():
                return replace(stmt, axes=tuple(Axis(a.var, dim(a.extent)) for a in stmt.axes))
            case Loop() | Stream():
                return replace(stmt, extent=dim(stmt.extent))
            case Tile():
                return replace(stmt, shape=tuple(dim(d) for d in stmt.shape))
            case Contract():
                return replace(
                    stmt,
                    a=_view(stmt.a, dims),
                    b=_view(stmt.b, dims),
                    rows=_span(stmt.rows, dims),
                    cols=_span(stmt.cols, dims),
                    depth=tuple(Axis(a.var, dim(a.extent)) for a in stmt.depth),
                )
            case Drain():
                return replace(stmt, rows=_span(stmt.rows, dims), cols=_span(stmt.cols, dims))
            case Attend():
                return _attend(stmt, dims)
            case Fill():
                spans = (_span(stmt.rows, dims), _span(stmt.cols, dims))
                return Fill(stmt.tile, *spans, _view(stmt.source, dims))
            case _:
                return None

    return rewrite(map_scalars(body, lambda v: substitute_indices(v, env)), each)


def _attend(stmt: Attend, dims: Mapping[str, Dim]) -> Attend:
    keys, depth, values = (
        Axis(axis.var, substitute(axis.extent, dims))
        for axis in (stmt.keys, stmt.depth, stmt.values)
    )
    q, k, v = (_view(view, dims) for view in (stmt.q, stmt.k, stmt.v))
    rows = _span(stmt.rows, dims)
    return replace(stmt, q=q, k=k, v=v, rows=rows, keys=keys, depth=depth, values=values)


def _entry(entry: IndexEntry, env: Mapping[str, IndexEntry]) -> IndexEntry:
    if isinstance(entry, Scalar):
        return entry
    if isinstance(entry, int):
        return entry
    fresh = substitute_indices(Load("", (entry,), i64), env)
    return fresh.index[0] if isinstance(fresh, Load) else entry


def _view(view: View, dims: Mapping[str, Dim]) -> View:
    return replace(view, index=tuple(substitute(i, dims) for i in view.index))


def _span(span: Span, dims: Mapping[str, Dim]) -> Span:
    return Span(span.var, substitute(span.first, dims), substitute(span.extent, dims))


def bound_vars(body: Body) -> tuple[str, ...]:
    """Names that statements bind: loop variables, fold axes and states, lets, tiles, drained values."""
    names: list[str] = []
    for stmt in walk(body):
        match stmt:
            case Loop() | Stream():
                names.append(stmt.var)
            case Fold():
                names += [a.var for a in stmt.axes]
                names += stmt.states
            case Let() | Tile():
                names.append(stmt.name)
            case Drain():
                names += [stmt.rows.var, stmt.cols.var, stmt.value]
            case Contract():
                names += [stmt.rows.var, stmt.cols.var, *(a.var for a in stmt.depth)]
            case Fill():
                names += [stmt.rows.var, stmt.cols.var]
            case Attend():
                names += [stmt.rows.var, stmt.keys.var, stmt.depth.var, stmt.values.var]
                names += [stmt.dot, stmt.out]
            case Store() | When() | Sync():
                pass
            case _:
                assert_never(stmt)
    return tuple(names)


def rename_bound(body: Body, names: Mapping[str, str]) -> Body:
    """Rename bound variables, states, lets and tiles, where they are bound and where they are used."""

    def leaf(value: Scalar) -> Scalar | None:
        if not isinstance(value, Name):
            return None
        return Name(names.get(value.name, value.name), value.dtype)

    symbols: dict[str, IndexEntry] = {old: symbol(fresh) for old, fresh in names.items()}
    renamed = map_scalars(body, lambda v: substitute_indices(transform(v, leaf), symbols))
    return rename_buffers(rewrite(renamed, lambda stmt: _renamed_bound(stmt, names)), names)


def _renamed_bound(stmt: Stmt, names: Mapping[str, str]) -> Stmt | None:
    """One statement with new names, without what it holds; None where it binds none."""
    match stmt:
        case Loop() | Stream():
            var = names.get(stmt.var, stmt.var)
            return replace(stmt, var=var, extent=rename(stmt.extent, names))
        case Fold():
            states = tuple(names.get(s, s) for s in stmt.states)
            return replace(stmt, states=states, axes=_renamed_axes(stmt.axes, names))
        case Let() | Tile():
            return replace(stmt, name=names.get(stmt.name, stmt.name))
        case Store():
            index = tuple(e if isinstance(e, Scalar) else rename(e, names) for e in stmt.index)
            return replace(stmt, index=index)
        case Drain() | Contract() | Fill() | Attend():
            return _renamed_tiles(stmt, names)
        case When() | Sync():
            return None
        case _:
            assert_never(stmt)


def _renamed_tiles(stmt: Drain | Contract | Fill | Attend, names: Mapping[str, str]) -> Stmt:
    """The same for statements on whole tiles."""

    def span(s: Span) -> Span:
        return Span(names.get(s.var, s.var), rename(s.first, names), rename(s.extent, names))

    match stmt:
        case Drain():
            value = names.get(stmt.value, stmt.value)
            return replace(stmt, rows=span(stmt.rows), cols=span(stmt.cols), value=value)
        case Contract():
            return replace(
                stmt,
                a=_renamed(stmt.a, names),
                b=_renamed(stmt.b, names),
                rows=span(stmt.rows),
                cols=span(stmt.cols),
                depth=_renamed_axes(stmt.depth, names),
            )
        case Fill():
            source = _renamed(stmt.source, names)
            return replace(stmt, rows=span(stmt.rows), cols=span(stmt.cols), source=source)
        case Attend():
            keys, depth, values = _renamed_axes((stmt.keys, stmt.depth, stmt.values), names)
            return replace(
                stmt,
                q=_renamed(stmt.q, names),
                k=_renamed(stmt.k, names),
                v=_renamed(stmt.v, names),
                rows=span(stmt.rows),
                keys=keys,
                depth=depth,
                values=values,
                dot=names.get(stmt.dot, stmt.dot),
                out=names.get(stmt.out, stmt.out),
            )
        case _:
            assert_never(stmt)


def _renamed_axes(axes: tuple[Axis, ...], names: Mapping[str, str]) -> tuple[Axis, ...]:
    return tuple(Axis(names.get(a.var, a.var), rename(a.extent, names)) for a in axes)


def _renamed(view: View, names: Mapping[str, str]) -> View:
    return replace(view, index=tuple(rename(i, names) for i in view.index))


def perfect_nest(body: Body) -> tuple[tuple[Loop, ...], Body]:
    """The outermost loops that contain exactly one statement each, and the statements inside the last."""
    loops: list[Loop] = []
    while len(body) == 1 and isinstance(body[0], Loop):
        loops.append(body[0])
        body = body[0].body
    return tuple(loops), body


def around(loops: tuple[Loop, ...], body: Body) -> Body:
    """Rebuild a nest of loops around `body`."""
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body


def map_store(kernel: Kernel) -> tuple[tuple[Loop, ...], Store] | None:
    """The loops and the only store of a kernel that computes each result element by one expression; else None."""
    loops, body = perfect_nest(kernel.body)
    if any(loop.role is Role.SEQ for loop in loops):
        return None
    if len(body) == 1 and isinstance(body[0], Store) and body[0].combine == "set":
        return loops, body[0]
    return None
