"""Numpy evaluation of kernels: what a memory program computes, at any stage of its scheduling.

Independent loops run in lockstep as array axes, statement by statement (in scattered pieces where a
kernel updates memory in place); sequential ones run in order. Every access is checked against its
buffer's logical shape. Not here: scalar functions (ir/evaluate.py), host steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, assert_never

import numpy as np

from unistack_aot.base.dtypes import dtype_of
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim
from unistack_aot.ir.evaluate import Array, evaluate
from unistack_aot.ir.scalar import Arg, Scalar
from unistack_aot.mcir import winograd
from unistack_aot.mcir.elements import Memory, Scope, element_value, index_array
from unistack_aot.mcir.monoids import MONOIDS, Monoid
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
    Span,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    View,
    When,
)
from unistack_aot.mcir.transform import all_loads

LIMIT = 1 << 22  # points of one lockstep step; larger loops run in pieces, to bound memory

# A kernel that updates memory runs its parallel loops in this many pieces, in no order: who relies on one, errs.
PIECES = 3

_ORDERED = (Role.SEQ, Role.UNROLL)
_COMBINE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def evaluate_kernel(
    kernel: Kernel, arrays: Mapping[str, Array], dims: Mapping[str, int]
) -> dict[str, Array]:
    """The arrays a kernel writes, by parameter name, for given inputs and dimension values.

    IRError for an access outside its buffer or an array of another shape or dtype. Elements never
    written are NaN, or the lowest integer.
    """
    memories: dict[str, Memory] = {}
    for param in kernel.params:
        shape = tuple(int(index_array(d, dims)) for d in param.shape)
        if param.access is Access.OUT:
            data = np.full(shape, _unset(param.dtype.numpy), param.dtype.numpy)
        else:
            given = arrays[param.name]
            if given.shape != shape or given.dtype != param.dtype.numpy:
                raise IRError(
                    f"{param.name} is {param.dtype}{shape}, got {given.dtype}{given.shape}"
                )
            data = given if param.access is Access.IN else given.copy()
        memories[param.name] = Memory(data)
    variables = {name: np.asarray(value, np.int64) for name, value in dims.items()}
    updated = {p.name for p in kernel.params if p.access is Access.INOUT}
    scattered = any(load.buffer in updated for load in all_loads(kernel.body))
    scope = Scope(memories, variables, {}, (), None, scattered)
    with np.errstate(all="ignore"):
        _run(kernel.body, scope)
    return {p.name: memories[p.name].data for p in kernel.outputs}


def _unset(dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else np.nan


def _run(body: Iterable[Stmt], scope: Scope) -> None:
    """Execute statements; names they bind are visible to later ones of the same body."""
    for stmt in body:
        match stmt:
            case Let():
                scope.names[stmt.name] = element_value(stmt.value, scope)
            case Store():
                _store(stmt, scope)
            case Fold():
                scope.names.update(_fold(stmt, scope))
            case Loop():
                _loop(stmt, scope)
            case Stream():
                _stream(stmt, scope)
            case Tile():
                _declare(stmt, scope)
            case Fill():
                _fill(stmt, scope)
            case Contract():
                _contract(stmt, scope)
            case Drain():
                _drain(stmt, scope)
            case Attend():
                _attend(stmt, scope)
            case When():
                _when(stmt, scope)
            case Sync():
                pass
            case _:
                assert_never(stmt)


def _stream(stream: Stream, scope: Scope) -> None:
    extent = index_array(stream.extent, scope.variables)
    for start in range(0, int(extent.max(initial=0)), stream.step):
        inner = scope.bind(stream.var, np.asarray(start, np.int64))
        _run(stream.body, inner.where(start < extent) if extent.ndim else inner)


def _loop(loop: Loop, scope: Scope) -> None:
    extent = index_array(loop.extent, scope.variables)
    values = np.arange(0, int(extent.max(initial=0)), loop.step, dtype=np.int64)
    if loop.role in _ORDERED:
        for value in values:
            inner = scope.bind(loop.var, np.asarray(value))
            _run(loop.body, inner.where(value < extent) if extent.ndim else inner)
        return
    per_value = max(1, prod(scope.grid)) * _volume(loop.body, scope)
    piece = max(1, LIMIT // per_value)
    if scope.scattered and len(values) > 1:
        values = np.random.default_rng(len(values)).permutation(values)
        piece = min(piece, -(-len(values) // PIECES))
    for start in range(0, len(values), piece):
        inner = scope.push(loop.var, values[start : start + piece])
        if extent.ndim:
            inner = inner.where(inner.variables[loop.var] < extent)
        _run(loop.body, inner)


def _volume(body: Iterable[Stmt], scope: Scope) -> int:
    """The most points per iteration that a body evaluates at once; unknown extents count as 1."""
    largest = 1
    for stmt in body:
        match stmt:
            case Loop():
                count = 1 if stmt.role in _ORDERED else _extent(stmt.extent, scope) // stmt.step
                largest = max(largest, max(1, count) * _volume(stmt.body, scope))
            case Fold():
                count = prod(_extent(axis.extent, scope) for axis in stmt.axes)
                largest = max(largest, count * _volume(stmt.body, scope))
            case Stream():
                largest = max(largest, _volume(stmt.body, scope))
            case When():
                inner = max(_volume(stmt.body, scope), _volume(stmt.otherwise, scope))
                largest = max(largest, inner)
            case Contract():
                axes = (stmt.rows, stmt.cols, *stmt.depth)
                largest = max(largest, prod(_extent(axis.extent, scope) for axis in axes))
            case Attend():
                axes = (stmt.rows, stmt.keys, stmt.depth)
                largest = max(largest, prod(_extent(axis.extent, scope) for axis in axes))
            case Drain():
                area = _extent(stmt.rows.extent, scope) * _extent(stmt.cols.extent, scope)
                largest = max(largest, area * _volume(stmt.body, scope))
            case Fill():
                area = _extent(stmt.rows.extent, scope) * _extent(stmt.cols.extent, scope)
                largest = max(largest, area)
            case Let() | Store() | Tile() | Sync():
                pass
            case _:
                assert_never(stmt)
    return largest


def _extent(extent: Dim, scope: Scope) -> int:
    try:
        return max(1, int(index_array(extent, scope.variables).max(initial=1)))
    except KeyError:
        return 1


def _push_axes(scope: Scope, axes: Iterable[Axis]) -> Scope:
    for axis in axes:
        extent = index_array(axis.extent, scope.variables)
        scope = scope.push(axis.var, np.arange(int(extent.max(initial=0)), dtype=np.int64))
        if extent.ndim:
            scope = scope.where(scope.variables[axis.var] < extent)
    return scope


def _fold(fold: Fold, scope: Scope) -> dict[str, Array]:
    """The folded state by name; long folds go piece by piece along their first axis."""
    monoid = MONOIDS[fold.monoid]
    dtypes = tuple(v.dtype for v in fold.values)
    state = tuple(element_value(v, scope) for v in monoid.identity(dtypes))
    first, *rest = fold.axes
    extent = index_array(first.extent, scope.variables)
    values = np.arange(int(extent.max(initial=0)), dtype=np.int64)
    others = prod(_extent(axis.extent, scope) for axis in rest) * _volume(fold.body, scope)
    piece = max(1, LIMIT // (max(1, prod(scope.grid)) * others))
    for start in range(0, len(values), piece):
        inner = scope.push(first.var, values[start : start + piece])
        if extent.ndim:
            inner = inner.where(inner.variables[first.var] < extent)
        inner = _push_axes(inner, rest)
        _run(fold.body, inner)
        part = _reduced(monoid, fold.values, inner, len(scope.grid))
        state = part if start == 0 else _merged(monoid, state, part)
    return dict(zip(fold.states, state, strict=True))


def _reduced(
    monoid: Monoid, values: tuple[Scalar, ...], inner: Scope, rank: int
) -> tuple[Array, ...]:
    """The monoid's state of all points of the axes that `inner` has beyond `rank`."""
    elements = tuple(element_value(v, inner) for v in values)
    dtypes = tuple(v.dtype for v in values)
    lifted = monoid.lift(tuple(Arg(k, d) for k, d in enumerate(dtypes)))
    state = [evaluate(field, elements) for field in lifted]
    neutral = [evaluate(field) for field in monoid.identity(dtypes)]
    folded = len(inner.grid) - rank
    points: list[Array] = []
    for field, empty in zip(state, neutral, strict=True):
        if inner.mask is not None:
            field = np.where(inner.mask, field, empty)
        # new axes lead, the last one first: turn them so that the first varies slowest
        shape = np.broadcast_shapes(field.shape, inner.grid[:folded] + (1,) * rank)
        field = np.broadcast_to(field, shape)
        order = (*reversed(range(folded)), *range(folded, field.ndim))
        field = field.transpose(order)
        points.append(field.reshape(-1, *field.shape[folded:]))
    common = np.broadcast_shapes(*(p.shape for p in points))
    return _tree(monoid, tuple(np.broadcast_to(p, common) for p in points), neutral)


def _tree(monoid: Monoid, points: tuple[Array, ...], neutral: list[Array]) -> tuple[Array, ...]:
    """Merge neighbours along axis 0 until one state is left."""
    count = points[0].shape[0]
    if count == 0:
        return tuple(np.broadcast_to(e, p.shape[1:]) for e, p in zip(neutral, points, strict=True))
    while count > 1:
        even = count // 2 * 2
        left, right = tuple(p[0:even:2] for p in points), tuple(p[1:even:2] for p in points)
        merged = _merged(monoid, left, right)
        points = tuple(np.concatenate([m, p[even:]]) for m, p in zip(merged, points, strict=True))
        count = points[0].shape[0]
    return tuple(p[0] for p in points)


def _merged(monoid: Monoid, left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
    dtypes = [dtype_of(a.dtype) for a in left]
    count = len(left)
    a = tuple(Arg(k, d) for k, d in enumerate(dtypes))
    b = tuple(Arg(count + k, d) for k, d in enumerate(dtypes))
    return tuple(evaluate(field, (*left, *right)) for field in monoid.merge(a, b))


def _store(store: Store, scope: Scope) -> None:
    memory = scope.memories[store.buffer]
    value = element_value(store.value, scope)
    index = memory.index(store.buffer, store.index, scope)
    if store.combine == "set" and scope.mask is None:
        memory.data[index] = value
        return
    everywhere = [np.broadcast_to(i, scope.grid) for i in index]
    values = np.broadcast_to(value, scope.grid)
    if scope.mask is not None:
        mask = np.broadcast_to(scope.mask, scope.grid)
        everywhere, values = [i[mask] for i in everywhere], values[mask]
    if store.combine == "set":
        memory.data[tuple(everywhere)] = values
    else:
        _COMBINE[store.combine].at(memory.data, tuple(everywhere), values)


def _declare(tile: Tile, scope: Scope) -> None:
    shape = tuple(int(index_array(d, scope.variables)) for d in tile.shape)
    dtype = tile.dtype.numpy
    fill = _unset(dtype) if tile.fill is None else tile.fill
    private = tuple(
        np.arange(n).reshape(-1, *(1,) * place)
        for place, n in zip(reversed(range(len(scope.grid))), scope.grid, strict=True)
    )
    data = np.full((*scope.grid, *shape), fill, dtype)
    scope.memories[tile.name] = Memory(data, private)


def _when(when: When, scope: Scope) -> None:
    condition = element_value(when.condition, scope)
    if condition.ndim == 0:
        _run(when.body if condition else when.otherwise, replace(scope, names=dict(scope.names)))
        return
    _run(when.body, scope.where(condition))
    _run(when.otherwise, scope.where(~condition))


def _push_span(scope: Scope, span: Span) -> Scope:
    """One more lockstep axis, along which the span's variable starts at `first`."""
    inner = _push_axes(scope, (Axis(span.var, span.extent),))
    first = index_array(span.first, scope.variables)
    return replace(
        inner, variables={**inner.variables, span.var: inner.variables[span.var] + first}
    )


def _operand(view: View, scope: Scope) -> Array:
    """A tile operand at every point of the scope; zero where `within` fails."""
    inside = None if view.within is None else element_value(view.within, scope)
    inner = scope if inside is None else scope.where(inside)
    memory = inner.memories[view.buffer]
    value = memory.read(memory.index(view.buffer, view.index, inner))
    if view.rounded is not None:
        with np.errstate(over="ignore"):
            value = value.astype(view.rounded.numpy)
    return value if inside is None else np.where(inside, value, np.zeros((), value.dtype))


def _fill(stmt: Fill, scope: Scope) -> None:
    """Zero the tile, then set the elements of both spans."""
    memory = scope.memories[stmt.tile]
    memory.data[...] = np.zeros((), memory.data.dtype)
    tile = _push_span(_push_span(scope, stmt.rows), stmt.cols)
    value = np.broadcast_to(_operand(stmt.source, tile), tile.grid)
    index = memory.index(stmt.tile, (), tile, _places(stmt.rows, stmt.cols, tile))
    everywhere = tuple(np.broadcast_to(i, tile.grid) for i in index)
    if tile.mask is not None:
        mask = np.broadcast_to(tile.mask, tile.grid)
        everywhere, value = tuple(i[mask] for i in everywhere), value[mask]
    memory.data[everywhere] = value


def _contract(stmt: Contract, scope: Scope) -> None:
    """acc[i, j] += sum over depth of a b, in the accumulator's dtype."""
    memory = scope.memories[stmt.acc]
    tile = _push_span(_push_span(scope, stmt.rows), stmt.cols)
    points = _push_axes(tile, stmt.depth)
    dtype = memory.data.dtype
    form = winograd.FORMS.get(stmt.via)
    weights = points if form is None else _untransformed(points, stmt.b.buffer, form)
    product = _operand(stmt.a, points).astype(dtype) * _operand(stmt.b, weights).astype(dtype)
    product = np.broadcast_to(product, points.grid)
    if points.mask is not None:
        product = np.where(np.broadcast_to(points.mask, points.grid), product, dtype.type(0))
    total = np.sum(product, axis=tuple(range(len(stmt.depth))))
    index = memory.index(stmt.acc, (), tile, _places(stmt.rows, stmt.cols, tile))
    everywhere = tuple(np.broadcast_to(i, tile.grid) for i in index)
    np.add.at(memory.data, everywhere, total)


def _untransformed(scope: Scope, name: str, form: winograd.Form) -> Scope:
    """The scope in which a buffer of transformed weights holds the weights themselves."""
    plain = Memory(winograd.recovered(scope.memories[name].data, form))
    return replace(scope, memories={**scope.memories, name: plain})


def _attend(stmt: Attend, scope: Scope) -> None:
    """The definition, without blocks: scores of all keys, then the weighted sum."""
    rows = _push_span(scope, stmt.rows)
    keyed = _push_axes(rows, (stmt.keys,))
    deep = _push_axes(keyed, (stmt.depth,))
    wide = stmt.score.dtype.numpy
    product = _operand(stmt.q, deep).astype(wide) * _operand(stmt.k, deep).astype(wide)
    keyed.names[stmt.dot] = np.sum(np.broadcast_to(product, deep.grid), axis=0)
    score = np.broadcast_to(element_value(stmt.score, keyed), keyed.grid)
    if keyed.mask is not None:
        score = np.where(keyed.mask, score, -np.inf)
    with np.errstate(all="ignore"):
        raised = np.exp(score - np.max(score, axis=0, keepdims=True, initial=-np.inf))
        weights = raised / np.sum(raised, axis=0, keepdims=True)
    result = _push_axes(rows, (stmt.values,))
    summed = _push_axes(result, (stmt.keys,))
    mixed = np.expand_dims(weights, 1) * _operand(stmt.v, summed).astype(wide)
    result.names[stmt.out] = np.sum(np.broadcast_to(mixed, summed.grid), axis=0)
    _run(stmt.body, result)


def _places(rows: Span, cols: Span, scope: Scope) -> tuple[Array, Array]:
    """Positions inside the tile of the rows and columns in scope."""
    i = scope.variables[rows.var] - index_array(rows.first, scope.variables)
    j = scope.variables[cols.var] - index_array(cols.first, scope.variables)
    return i, j


def _drain(drain: Drain, scope: Scope) -> None:
    inner = _push_span(_push_span(scope, drain.rows), drain.cols)
    memory = inner.memories[drain.acc]
    places = _places(drain.rows, drain.cols, inner)
    inner.names[drain.value] = memory.data[memory.index(drain.acc, (), inner, places)]
    _run(drain.body, inner)
