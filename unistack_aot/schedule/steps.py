"""Ordered loops whose every step is a launch of its own, so that all units share the work of a step.

Not here: the alternative, one group per row that stays for all steps (many_narrow.py).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from unistack_aot.base.symbolic import Ranges, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import IndexEntry, Scalar
from unistack_aot.mcir.nodes import Fold, Kernel, Loop, Role, Stmt, Store
from unistack_aot.mcir.transform import all_loads, bound_vars, walk
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.independent import MOVE_OUTSIDE
from unistack_aot.schedule.many_narrow import WARPS, per_warp
from unistack_aot.schedule.nests import Nest, nest_of, number, span_of
from unistack_aot.schedule.operator import Kernels, Operator, or_same
from unistack_aot.schedule.row_workers import SHORT_ROW
from unistack_aot.schedule.unswitch import UNSWITCH


def choose_steps(kernel: Kernel, ranges: Ranges, machine: Machine) -> Decision | No:
    """A launch per step of an ordered loop, if that costs less than waiting for one group that stays."""
    possible = LAUNCH_STEPS.check(kernel, ranges, machine.lanes, machine.vector_bytes)
    if isinstance(possible, No):
        return possible
    found = _ordered_nest(kernel)
    assert not isinstance(found, No)
    ordered, nest = found
    together, each = _seconds_per_step(kernel, ordered, nest, machine)
    rows = f"{number(nest.points)} rows of {max(map(span_of, nest.body))}"
    one_group = f"one group per row {together * 1e6:.2f} us"
    because = (
        f"{each * 1e6:.2f} us per step of {rows} predicted on {machine.id}: launch, l2.bandwidth"
    )
    if each >= together:
        return No(f"{because}; {one_group}")
    subject = ", ".join(p.name for p in kernel.outputs)
    return Decision("steps", subject, "a launch per step", because, (one_group,))


def can_launch_steps(kernel: Kernel, ranges: Ranges, lanes: int, vector: int) -> Yes | No:
    """Whether the steps of an ordered loop are independent rows that read what earlier steps wrote."""
    found = _ordered_nest(kernel)
    return found if isinstance(found, No) else _reads_earlier_steps(kernel, found[0])


def steps_launched(kernel: Kernel, ranges: Ranges, lanes: int, vector: int) -> Kernel:
    """An ordered loop around a grid of workers, one per row of a step: each step is a launch of its own.

    before:
        kernel recurrent(x: f32[9, 2, 64] far, w: f32[64, 64] far, h0: f32[2, 64] far) -> y: f32[9, 2, 64] far {
          for t in 9 role=seq, r in 2, u in 64 {
            s = fold sum over k in 64 of w[u, k] * where([t] == 0, h0[r, k], y[t - 1, r, k])
            y[t, r, u] = tanh(x[t, r, u] + s)
          }
        }
    after:
        kernel k0(
            x: f32[9, 2, 64] far,
            w: f32[64, 64] far,
            h0: f32[2, 64] far
        ) -> y: f32[9, 2, 64] far group=128 {
          for t in 9 role=seq, block in 32 role=grid, within in 4 role=group {
            when t == 0 {
              s = fold sum over k_q in 32, k_v in 2 role=lane of w[(4*block + within)%64, 2*k_q + k_v] *
                h0[(4*block + within)//64, 2*k_q + k_v]
              for once1 in 1 role=lane {
                y[t, (4*block + within)//64, (4*block + within)%64] = tanh(x[t, (4*block + within)//64,
                  (4*block + within)%64] + s)
              }
            } else {
              s = fold sum over k_q in 32, k_v in 2 role=lane of w[(4*block + within)%64, 2*k_q + k_v] * y[t
                - 1, (4*block + within)//64, 2*k_q + k_v]
              for once1 in 1 role=lane {
                y[t, (4*block + within)//64, (4*block + within)%64] = tanh(x[t, (4*block + within)//64,
                  (4*block + within)%64] + s)
              }
            }
          }
        }
    """
    found = _ordered_nest(kernel)
    assert not isinstance(found, No)
    ordered, nest = found
    step = replace(ordered, body=nest.body)
    step = or_same(UNSWITCH(step), step)
    inside = Nest(nest.axes, step.body)
    spread = per_warp(kernel.with_body((step,)), inside, ranges, lanes, vector)
    return replace(spread, body=(replace(ordered, body=spread.body),))


def _ordered_nest(kernel: Kernel) -> tuple[Loop, Nest] | No:
    """The ordered loop, and the independent loops that each of its steps is."""
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], Loop):
        return No("no loop around all of it")
    ordered = kernel.body[0]
    if ordered.role is not Role.SEQ or ordered.step != 1:
        return No("no order between its iterations")
    nest = nest_of(ordered.body)
    names = {ordered.var, *(axis.var for axis in nest.axes)}
    if not nest.axes or any(symbols(axis.extent) & names for axis in nest.axes):
        return No("its steps are not independent loops of one size")
    if any(isinstance(s, Loop) for s in walk(nest.body)):
        return No("loops inside a row")
    if not any(isinstance(s, Fold) and span_of(s) > SHORT_ROW for s in nest.body):
        return No("rows too short for a warp")
    return ordered, nest


def _reads_earlier_steps(kernel: Kernel, ordered: Loop) -> Yes | No:
    """Whether nothing that a step reads is written in the same step: some index entry differs by a constant."""
    stores = [s for s in walk(ordered.body) if isinstance(s, Store)]
    inner = set(bound_vars(ordered.body))
    for store in stores:
        if not any(_stands_still(e, inner) and _follows(e, ordered.var) for e in store.index):
            return No(f"{store.buffer} is not told apart by {ordered.var}")
    for load in all_loads(ordered.body):
        for store in (s for s in stores if s.buffer == load.buffer):
            pairs = zip(load.index, store.index, strict=True)
            if not any(_differs(a, b) for a, b in pairs):
                return No(f"{load.buffer} may be read in the step that writes it")
    return YES


def _stands_still(entry: IndexEntry, inner: set[str]) -> bool:
    return not isinstance(entry, Scalar) and not symbols(entry) & inner


def _follows(entry: IndexEntry, var: str) -> bool:
    return not isinstance(entry, Scalar) and var in symbols(entry)


def _differs(one: IndexEntry, other: IndexEntry) -> bool:
    if isinstance(one, Scalar) or isinstance(other, Scalar):
        return False
    apart = one - other
    return isinstance(apart, int) and apart != 0


def _seconds_per_step(
    kernel: Kernel, ordered: Loop, nest: Nest, machine: Machine
) -> tuple[float, float]:
    """A step by one group per outer row, which stays; and by a launch over all units.

    What a step reads comes from the last cache, to which every unit has its share of the bandwidth; a group that stays
    reads all of it through its own.
    """
    moved = _read_by_a_step(ordered)
    units, rate = machine.parallel_units, machine.bandwidth("l2").value
    wait = 2 * machine.latency("far").value
    groups = number(nest_of(or_same(MOVE_OUTSIDE(kernel), kernel).body).points)
    together = wait + ceil(groups / units) * moved / (rate / units)
    busy = min(units, ceil(number(nest.points) / WARPS))
    each = machine.launch_cost().value + wait + moved / (rate * busy / units)
    return together, each


def _read_by_a_step(ordered: Loop) -> float:
    """Bytes of all elements that the loads of a step name, each load for itself."""
    extents: dict[str, int] = {}
    for stmt in walk(ordered.body):
        axes = [(stmt.var, stmt.extent)] if isinstance(stmt, Loop) else []
        axes += [(a.var, a.extent) for a in stmt.axes] if isinstance(stmt, Fold) else []
        extents |= {var: number(extent) for var, extent in axes}
    total = 0.0
    for load in dict.fromkeys(all_loads(ordered.body)):
        names = {n for e in load.index if not isinstance(e, Scalar) for n in symbols(e)}
        total += prod(extents.get(name, 1) for name in names) * load.dtype.bytes
    return total


def launched_steps(kernel: Kernel) -> tuple[Loop | None, tuple[Stmt, ...]]:
    """The ordered loop around a kernel's grid, each step of which is a launch of its own, and what is inside."""
    outer = kernel.body[0]
    if isinstance(outer, Loop) and outer.role is Role.SEQ and len(kernel.body) == 1:
        return outer, outer.body
    return None, kernel.body


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    found = LAUNCH_STEPS(kernel, {}, 32, 16)
    return found if isinstance(found, No) else (found,)


LAUNCH_STEPS = Operator("launch-steps", can_launch_steps, steps_launched, _example)
