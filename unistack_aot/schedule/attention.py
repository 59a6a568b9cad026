"""Recognises attention by its structure: a softmax fold over keys of q k', then sums over keys of weights times v.

Not here: how a block of rows is streamed (a target's tile instruction).
"""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.symbolic import Dim, ceildiv, minimum, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import (
    Call,
    Cast,
    Load,
    Name,
    Scalar,
    index_symbols,
    postorder,
    substitute_indices,
    transform,
)
from unistack_aot.mcir.nodes import Attend, Axis, Fold, Kernel, Loop, Role, Span, Stmt, View
from unistack_aot.mcir.transform import perfect_nest
from unistack_aot.schedule.contraction import Factor, factors_of
from unistack_aot.schedule.operator import Kernels, Operator


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """A kernel as attention: `outer` loops (batch and heads), then `rows` of queries.

    `score` is computed from `Name(dot)` and the index variables; `tail` stores `Name(out)` per row and value.
    """

    outer: tuple[Axis, ...]
    rows: Axis
    keys: Axis
    depth: Axis
    values: Axis
    q: Load
    k: Load
    v: Load
    dot: Name
    score: Scalar
    out: Name
    tail: tuple[Stmt, ...]


def find_attention(kernel: Kernel) -> AttentionSite | No:
    """The attention that a kernel is, or why it is none."""
    loops, body = perfect_nest(kernel.body)
    if len(body) != 2 or not isinstance(body[0], Fold) or not isinstance(body[1], Loop):
        return No("it is not a fold followed by a loop")
    if any(loop.role is not Role.MAP for loop in (*loops, body[1])):
        return No("its loops run in order")
    state, over = body[0], body[1]
    if state.monoid != "softmax" or len(state.axes) != 1 or len(state.body) != 1:
        return No("the fold is no softmax of inner products")
    inner, mix = state.body[0], over.body[0]
    if not isinstance(inner, Fold) or not isinstance(mix, Fold) or len(inner.axes) != 1:
        return No("there is no inner product under the softmax")
    if inner.monoid != "sum" or mix.monoid != "sum" or len(mix.axes) != 1 or not loops:
        return No("the folds are no sums")
    product = factors_of(inner.values[0])
    weighted = _weighted(mix.values[0], state)
    if product is None or weighted is None or any(f.within is not None for f in product):
        return No("the operands are guarded or no plain loads")
    keys, depth = state.axes[0], inner.axes[0]
    q, k = _told_apart(product, keys)
    if q is None or k is None or not _same_scores(state, mix):
        return No("the scores of the two passes differ")
    value = substitute_indices(weighted.load, {mix.axes[0].var: symbol(keys.var)})
    assert isinstance(value, Load)
    *outer, rows = (Axis(loop.var, loop.extent) for loop in loops)
    if any(rows.var in index_symbols(load) for load in (k.load, value)):
        return No("keys or values depend on the query")
    dot = Name(inner.states[0], inner.values[0].dtype)
    out = Name(mix.states[0], mix.values[0].dtype)
    values = Axis(over.var, over.extent)
    return AttentionSite(
        tuple(outer), rows, keys, depth, values, q.load, k.load, value, dot,
        state.values[0], out, over.body[1:],
    )  # fmt: skip


def _told_apart(product: tuple[Factor, Factor], keys: Axis) -> tuple[Factor | None, Factor | None]:
    first, second = product
    if keys.var in second.names and keys.var not in first.names:
        return first, second
    if keys.var in first.names and keys.var not in second.names:
        return second, first
    return None, None


def _weighted(value: Scalar, state: Fold) -> Factor | None:
    """The v of `exp(score - max) / sum * v`; None if the value is something else."""
    if not (isinstance(value, Call) and value.fn == "mul"):
        return None
    for weight, other in (value.args, value.args[::-1]):
        names = {n.name for n in postorder(weight) if isinstance(n, Name)}
        load = other
        while isinstance(load, Cast):
            load = load.value
        if set(state.states) <= names and isinstance(load, Load):
            return Factor(load, None)
    return None


def _same_scores(state: Fold, mix: Fold) -> bool:
    """Whether the weights' scores are those of the softmax, under the other fold's variable names."""
    inner, again = state.body[0], mix.body[0] if mix.body else None
    if not isinstance(inner, Fold) or not isinstance(again, Fold) or len(again.axes) != 1:
        return False
    env = {
        mix.axes[0].var: symbol(state.axes[0].var),
        again.axes[0].var: symbol(inner.axes[0].var),
    }
    names = dict(zip(again.states, inner.states, strict=True))

    def renamed(value: Scalar) -> Scalar:
        moved = substitute_indices(value, env)
        return transform(
            moved,
            lambda v: (
                Name(names[v.name], v.dtype) if isinstance(v, Name) and v.name in names else None
            ),
        )

    same_products = renamed(again.values[0]) is inner.values[0]
    return same_products and state.values[0] in set(postorder(renamed(mix.values[0])))


def can_attend(
    kernel: Kernel,
    site: AttentionSite | No,
    rows: int,
    keys: int,
    via: str,
    role: Role = Role.GRID,
) -> Yes | No:
    """Whether the kernel is attention, with blocks that hold something."""
    if isinstance(site, No):
        return site
    return YES if rows > 0 and keys > 0 else No(f"blocks of {rows} queries and {keys} keys")


def attended(
    kernel: Kernel,
    site: AttentionSite | No,
    rows: int,
    keys: int,
    via: str,
    role: Role = Role.GRID,
) -> Kernel:
    """The kernel as blocks of `rows` queries, each streaming over `keys` keys at a time.

    before:
        kernel attention(q: f32[N, 8] far, k: f32[M, 8] far, v: f32[M, 4] far) -> y: f32[N, 4] far {
          for m in N {
            top, total = fold softmax over n in M {
              dot = fold sum over d in 8 of q[m, d] * k[n, d]
              of dot * 0.125
            }
            for e in 4 {
              out = fold sum over n2 in M {
                dot2 = fold sum over d2 in 8 of q[m, d2] * k[n2, d2]
                of exp(dot2 * 0.125 - top) / total * v[n2, e]
              }
              y[m, e] = out
            }
          }
        }
    after:
        kernel k0(q: f32[N, 8] far, k: f32[M, 8] far, v: f32[M, 4] far) -> y: f32[N, 4] far {
          for m_block in (N + 3)//4 role=grid {
            attend m in 4*m_block ..+ min(4, N - 4*m_block) over n in M via attention.f32 blocks(4, 8) {
              dot: f32 = contract(q[m, d], k[n, d]) over d in 8
              score dot * 0.125
              out: f32 = mix(v[n, e]) for e in 4 {
                y[m, e] = out
              }
            }
          }
        }
    """
    assert not isinstance(site, No)
    block = symbol(f"{site.rows.var}_block")
    first: Dim = block * rows
    count = site.rows.extent
    whole = isinstance(count, int) and count % rows == 0
    span = Span(site.rows.var, first, rows if whole else minimum(rows, count - first))
    stmt = _streamed(site, span, (rows, keys), via)
    body: tuple[Stmt, ...] = (Loop(str(block), ceildiv(count, rows), (stmt,), role),)
    for axis in reversed(site.outer):
        body = (Loop(axis.var, axis.extent, body, role),)
    return kernel.with_body(body)


def _streamed(site: AttentionSite, rows: Span, sizes: tuple[int, int], via: str) -> Attend:
    """One block of rows over all keys."""
    return Attend(
        _view(site.q),
        _view(site.k),
        _view(site.v),
        rows,
        site.keys,
        site.depth,
        site.values,
        site.dot.name,
        site.score,
        site.out.name,
        site.tail,
        via,
        sizes,
    )


def _view(load: Load) -> View:
    index = tuple(e for e in load.index if not isinstance(e, Scalar))
    return View(load.buffer, index)


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    found = ATTEND(kernel, find_attention(kernel), 4, 8, "attention.f32")
    return found if isinstance(found, No) else (found,)


ATTEND = Operator("attend", can_attend, attended, _example)
