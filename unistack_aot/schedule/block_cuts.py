"""Schedule operator: nests over a blocked axis are cut where its last block is not full.

Not here: which loops run over lanes (few_wide.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.nodes import Kernel, Loop, Role, Stmt, Store
from unistack_aot.mcir.transform import (
    all_loads,
    around,
    bound_vars,
    perfect_nest,
    rename_bound,
    substitute_vars,
    walk,
)
from unistack_aot.schedule.operator import Kernels, Operator


def can_cut(kernel: Kernel, stmt: Stmt) -> Yes | No:
    """Whether a nest of independent loops runs over whole blocks and a part of one."""
    found = _cut(kernel, stmt)
    return found if isinstance(found, No) else YES


def blocks_cut(kernel: Kernel, stmt: Stmt) -> tuple[Stmt, ...]:
    """A nest over a blocked axis as one over its whole blocks and one over the rest, so that vectors have one length.

    before:
        kernel relu(x: f32[24] far block(0, 16)) -> y: f32[24] far {
          for c in 24 {
            y[c] = max(x[c], 0.0)
          }
        }
    after:
        kernel k0(x: f32[24] far block(0, 16)) -> y: f32[24] far {
          for c in 16 {
            y[c] = max(x[c], 0.0)
          }
          for c_rest in 8 {
            y[c_rest + 16] = max(x[c_rest + 16], 0.0)
          }
        }
    """
    found = _cut(kernel, stmt)
    assert not isinstance(found, No)
    cut, rest = found
    assert isinstance(cut.extent, int)
    loops, body = perfect_nest((stmt,))
    whole = tuple(replace(e, extent=cut.extent - rest) if e is cut else e for e in loops)
    part = tuple(replace(e, extent=rest) if e is cut else e for e in loops)
    moved = substitute_vars(body, {cut.var: symbol(cut.var) + (cut.extent - rest)})
    tail = around(part, moved)
    names = {name: f"{name}_rest" for name in bound_vars(tail)}
    return (*around(whole, body), *rename_bound(tail, names))


def _cut(kernel: Kernel, stmt: Stmt) -> tuple[Loop, int] | No:
    """The loop to cut, and how many of its iterations fill no block."""
    loops, body = perfect_nest((stmt,))
    if not loops or any(each.role is not Role.MAP for each in loops):
        return No("it is no nest of independent loops")
    found = blocked_loop(kernel, loops, body)
    cut = next((each for each in loops if found is not None and each.var == found[0]), None)
    if found is None or cut is None or not isinstance(cut.extent, int):
        return No("no loop of constant length runs over blocks")
    rest = cut.extent % found[1]
    if rest == 0 or cut.extent < found[1]:
        return No("its blocks are all full, or it has only one")
    return cut, rest


def blocked_loop(
    kernel: Kernel, loops: tuple[Loop, ...], body: tuple[Stmt, ...]
) -> tuple[str, int] | None:
    """The loop that indexes the blocked axis of a result, or else of an operand."""
    names = {each.var for each in loops}
    stores = [(s.buffer, s.index) for s in walk(body) if isinstance(s, Store)]
    reads = [(load.buffer, load.index) for load in all_loads(body)]
    layouts = {p.name: p.layout for p in kernel.params}
    for buffer, index in (*stores, *reads):
        layout = layouts.get(buffer)
        if layout is None or layout.block is None:
            continue
        axis, size = layout.block
        entry = index[axis]
        if isinstance(entry, int | Scalar):
            continue
        for var in names & entry.symbols:
            first = entry - symbol(var)
            if isinstance(first, int) and first % size == 0:
                return var, size
    return None


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    found = CUT_BLOCKS(kernel, kernel.body[0])
    return found if isinstance(found, No) else (kernel.with_body(found),)


CUT_BLOCKS = Operator("cut-blocks", can_cut, blocks_cut, _example)
