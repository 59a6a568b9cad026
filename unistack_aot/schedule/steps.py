"""Ordered loops whose every step is a launch of its own, so that all units share the work of a step.

Not here: the alternative, one group per row that stays for all steps (many_narrow.py).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from unistack_aot.base.symbolic import Ranges, symbol, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.formula import equal
from unistack_aot.ir.scalar import IndexEntry, Scalar, index_value
from unistack_aot.mcir.nodes import Fold, Kernel, Loop, Role, Stmt, Store, When
from unistack_aot.mcir.transform import all_loads, bound_vars, substitute_vars, walk
from unistack_aot.schedule.independent import MOVE_OUTSIDE
from unistack_aot.schedule.many_narrow import WARPS, per_warp
from unistack_aot.schedule.nests import Nest, nest_of, number, span_of
from unistack_aot.schedule.offers import Way
from unistack_aot.schedule.operator import Kernels, Operator, or_same
from unistack_aot.schedule.row_workers import SHORT_ROW
from unistack_aot.schedule.unswitch import UNSWITCH


def step_ways(kernel: Kernel, ranges: Ranges, machine: Machine) -> tuple[Way[bool], ...] | No:
    """Launches per step of an ordered loop (True), or one group that stays; what is predicted to take less first."""
    possible = LAUNCH_STEPS.check(kernel, ranges, machine.lanes, machine.vector_bytes)
    if isinstance(possible, No):
        return possible
    found = _ordered_nests(kernel)
    assert not isinstance(found, No)
    ordered, nests = found
    together, each = _seconds_per_step(kernel, ordered, nests, machine)
    longest = max(span_of(stmt) for nest in nests for stmt in nest.body)
    rows, steps = f"{number(nests[0].points)} rows of {longest}", number(ordered.extent)
    launches = "a launch" if len(nests) == 1 else f"{len(nests)} launches"

    def way(name: str, launched: bool, seconds: float, decided: str) -> Way[bool]:
        words = f"{steps} steps of {rows}, each {seconds * 1e6:.2f} us predicted on {machine.id}"
        because = f"{words}: {decided}"
        return Way(name, steps * seconds, (99.0 * launched,), launched, because)

    ways = (
        way("one group per row", False, together, "l2.bandwidth"),
        way(f"{launches} per step", True, each, "launch, l2.bandwidth"),
    )
    return tuple(sorted(ways, key=lambda way: way.seconds))


def can_launch_steps(kernel: Kernel, ranges: Ranges, lanes: int, vector: int) -> Yes | No:
    """Whether the steps of an ordered loop, or their parts, are independent rows that read what earlier ones wrote."""
    found = _ordered_nests(kernel)
    if isinstance(found, No):
        return found
    ordered, nests = found
    reasons = (_reads_earlier_steps(ordered.var, nest) for nest in nests)
    return next((each for each in reasons if isinstance(each, No)), YES)


def steps_launched(kernel: Kernel, ranges: Ranges, lanes: int, vector: int) -> Kernel:
    """An ordered loop around a grid of workers, one per row of a step: each step is a launch of its own.

    Of steps that have several parts, one after another, each part is a launch: number `2*t` the first of step `t`, and
    `2*t + 1` the second.

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
    found = _ordered_nests(kernel)
    assert not isinstance(found, No)
    ordered, nests = found
    bodies = [_step(replace(ordered, body=nest.body), len(nests)) for nest in nests]
    number_of_part = index_value(symbol(ordered.var) % len(nests))
    body = bodies[-1]
    for place in reversed(range(len(nests) - 1)):
        body = (When(equal(number_of_part, place), bodies[place], body),)
    steps = replace(ordered, extent=ordered.extent * len(nests), body=body)
    inside = Nest(nests[0].axes, body)
    spread = per_warp(kernel.with_body((steps,)), inside, ranges, lanes, vector)
    return replace(spread, body=(replace(steps, body=spread.body),))


def _step(loop: Loop, parts: int) -> tuple[Stmt, ...]:
    """The body of a part of a step: the first step apart, the variable counting parts of steps."""
    body = or_same(UNSWITCH(loop), loop).body
    return body if parts == 1 else substitute_vars(body, {loop.var: symbol(loop.var) // parts})


def _ordered_nests(kernel: Kernel) -> tuple[Loop, tuple[Nest, ...]] | No:
    """The ordered loop, and the independent loops that each of its steps is, one nest after another, of one size."""
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], Loop):
        return No("no loop around all of it")
    ordered = kernel.body[0]
    if ordered.role is not Role.SEQ or ordered.step != 1:
        return No("no order between its iterations")
    first = nest_of(ordered.body[:1])
    nests: list[Nest] = []
    for stmt in ordered.body:
        nest = nest_of((stmt,))
        names = {ordered.var, *(axis.var for axis in nest.axes)}
        if not nest.axes or any(symbols(axis.extent) & names for axis in nest.axes):
            return No("its steps are not independent loops of one size")
        if [axis.extent for axis in nest.axes] != [axis.extent for axis in first.axes]:
            return No("the parts of a step have different sizes")
        if any(isinstance(s, Loop) for s in walk(nest.body)):
            return No("loops inside a row")
        if not any(isinstance(s, Fold) and span_of(s) > SHORT_ROW for s in nest.body):
            return No("rows too short for a warp")
        env = {axis.var: symbol(same.var) for axis, same in zip(nest.axes, first.axes, strict=True)}
        nests.append(Nest(first.axes, substitute_vars(nest.body, env)))
    return ordered, tuple(nests)


def _reads_earlier_steps(var: str, nest: Nest) -> Yes | No:
    """Whether a step, or its part, reads nothing that it writes: some index entry differs by a constant."""
    stores = [s for s in walk(nest.body) if isinstance(s, Store)]
    inner = {*bound_vars(nest.body), *(axis.var for axis in nest.axes)}
    loads = tuple(all_loads(nest.body))
    for store in stores:
        told = any(_stands_still(e, inner) and _follows(e, var) for e in store.index)
        if not told and any(load.buffer == store.buffer for load in loads):
            return No(f"{store.buffer} is not told apart by {var}")
    for load in loads:
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
    kernel: Kernel, ordered: Loop, nests: tuple[Nest, ...], machine: Machine
) -> tuple[float, float]:
    """A step by one group per outer row, which stays; and by a launch over all units for each of its parts.

    What a step reads comes from the last cache, to which every unit has its share of the bandwidth; a group that stays
    reads all of it through its own.
    """
    moved = _read_by_a_step(ordered)
    units, rate = machine.parallel_units, machine.bandwidth("l2").value
    wait = 2 * machine.latency("far").value
    groups = number(nest_of(or_same(MOVE_OUTSIDE(kernel), kernel).body).points)
    together = wait * len(nests) + ceil(groups / units) * moved / (rate / units)
    busy = min(units, ceil(number(nests[0].points) / WARPS))
    start = machine.launch_cost().value + wait
    each = start * len(nests) + moved / (rate * busy / units)
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
