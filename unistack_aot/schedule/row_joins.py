"""Fusion of a reduction with a reader that runs over the same rows: folded values stay in registers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistack_aot.base.symbolic import Dim, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import IndexEntry, Name
from unistack_aot.mcir.canonical import apart_from, closed, opened, union
from unistack_aot.mcir.nodes import Kernel, Let, Loop, Role, Stmt, Store
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import (
    all_loads,
    around,
    perfect_nest,
    replace_loads,
    rewrite,
    substitute_vars,
    walk,
)
from unistack_aot.schedule.merging import both, outputs_last
from unistack_aot.schedule.operator import Kernels, Operator, on_launches


@dataclass(frozen=True, slots=True)
class _Fit:
    """The producer and its row loops with what they hold, the reader, and its statements in terms of those loops."""

    source: Kernel
    target: Kernel
    rows: tuple[Loop, ...]
    inner: tuple[Stmt, ...]
    rest: tuple[Stmt, ...]


def can_join(producer: Launch, reader: Launch, keep: frozenset[str]) -> Yes | No:
    """Whether both run over the same rows, and the reader needs the results of its own row alone."""
    fit = _fit(producer, reader)
    return fit if isinstance(fit, No) else YES


def joined(producer: Launch, reader: Launch, keep: frozenset[str]) -> Launch:
    """Both kernels in one loop over their common rows; results are Lets there, those in `keep` are stored too.

    before:
        kernel top(x: f32[N, 8] far) -> t: f32[N] far {
          for i in N {
            top = fold max over j in 8 of x[i, j]
            t[i] = top
          }
        }
        kernel shifted(x: f32[N, 8] far, t: f32[N] far) -> y: f32[N, 8] far {
          for i in N, j in 8 {
            y[i, j] = exp(x[i, j] - t[i])
          }
        }
    after:
        kernel k0(x0: f32[N, 8] far) -> y0: f32[N, 8] far {
          for i0 in N {
            i2 = fold max over i1 in 8 of x0[i0, i1]
            i3 = i2
            for i4 in 8 {
              y0[i0, i4] = exp(x0[i0, i4] - i3)
            }
          }
        }
    """
    fit = _fit(producer, reader)
    assert not isinstance(fit, No)
    results = {p.name: p for p in fit.source.outputs}

    def held(name: str) -> Name:
        return Name(f"{name}_value", results[name].dtype)

    tail = replace_loads(
        fit.rest, lambda read: held(read.buffer) if read.buffer in results else None
    )

    def change(stmt: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        if not isinstance(stmt, Store) or stmt.buffer not in results:
            return None
        value = held(stmt.buffer)
        let = Let(value.name, stmt.value)
        return (let, replace(stmt, value=value)) if stmt.buffer in keep else let

    body = around(fit.rows, (*rewrite(fit.inner, change), *tail))
    gone = tuple(p for p in fit.source.params if p.name in keep or p.name not in results)
    others = tuple(p for p in fit.target.params if p.name not in results)
    return closed(Kernel(outputs_last(union(gone, others)), body), both(producer, reader))


def _fit(producer: Launch, reader: Launch) -> _Fit | No:
    source, target = opened(producer), opened(reader)
    target = apart_from(target, source)
    outer, inner = perfect_nest(source.body)
    results = {p.name: p for p in source.outputs}
    places = _row_places(outer, inner, tuple(results))
    if isinstance(places, No):
        return places
    outers, _ = perfect_nest(target.body)
    if len(outers) < len(outer) or not outer:
        return No("the reader has fewer loops")
    same = outers[: len(outer)]
    env: dict[str, Dim] = {}
    for mine, theirs in zip(outer, same, strict=True):
        if mine.extent != theirs.extent or mine.role is not theirs.role:
            return No(f"loops {mine.var} and {theirs.var} differ")
        env[theirs.var] = symbol(mine.var)
    rest = substitute_vars(same[-1].body, env)
    for load in all_loads(rest):
        found = results.get(load.buffer)
        if found and not same_place(load.index, places[load.buffer], found.shape):
            return No("the reader uses other rows' results")
    return _Fit(source, target, outer, inner, rest)


def _row_places(
    loops: tuple[Loop, ...], inner: tuple[Stmt, ...], results: tuple[str, ...]
) -> dict[str, tuple[IndexEntry, ...]] | No:
    """Where each result is stored, if each is stored once per row, at the top level of the row."""
    if any(loop.role is not Role.MAP for loop in loops):
        return No("the producer's loops are not independent")
    places: dict[str, tuple[IndexEntry, ...]] = {}
    for result in results:
        stores = [s for s in inner if isinstance(s, Store) and s.buffer == result]
        inside = [s for s in walk(inner) if isinstance(s, Store) and s.buffer == result]
        if len(stores) != 1 or len(inside) != 1 or stores[0].combine != "set":
            return No(f"{result} is not one value per row")
        places[result] = stores[0].index
    return places


def same_place(
    index: tuple[IndexEntry, ...], other: tuple[IndexEntry, ...], shape: tuple[Dim, ...]
) -> bool:
    """Whether two indices of a buffer name the same element; axes of extent 1 do not matter."""
    if not len(index) == len(other) == len(shape):
        return False
    pairs = zip(index, other, shape, strict=True)
    return all(a == b or extent == 1 for a, b, extent in pairs)


def _example(kernels: Kernels) -> Kernels | No:
    return on_launches(lambda producer, reader: JOIN_ROWS(producer, reader, frozenset()), kernels)


JOIN_ROWS = Operator("join-rows", can_join, joined, _example)
