"""Kernels that need more registers than a thread has: refused, and scheduled again in ways that hold less.

Not here: what ptxas reports (build.py), the choice itself (legalize.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from unistack_aot.artifact import manifest
from unistack_aot.base.errors import ToolFailed
from unistack_aot.hw.machine import Machine
from unistack_aot.schedule.attention_blocks import AttentionBlock
from unistack_aot.schedule.many_narrow import Most
from unistack_aot.schedule.tile_instruction import TileInstruction
from unistack_aot.targets.cuda.build import Resources
from unistack_aot.targets.target import Avoided, BuiltBadly, Source

CROWDED = "as many resident groups as possible"
"""What ptxas spills for where nothing else is asked of it: a few bytes, though registers are left."""
HINT = "declare narrower ranges of dimensions, or choose another precision, so that other tiles fit"


@dataclass(frozen=True, slots=True)
class LoopWay:
    """How a kernel of plain loops is realised; `rolled`: the compiler may not unroll its loops.

    `small`: little is fused into it.
    """

    name: str
    most: Most
    rolled: bool
    held: int
    small: bool = False


LOOPS = (
    LoopWay("loops.16", Most(), False, 4),
    LoopWay("loops.8", Most(8), False, 3),
    LoopWay("loops.1", Most(1, 256), False, 2),
    LoopWay("loops.rolled", Most(1, 256), True, 1),
    LoopWay("loops.small", Most(1, 256), True, 0, small=True),
)
"""From the fastest to the one with least in registers.

Narrower accesses, smaller groups, loops one step at a time, and then several kernels instead of one.
"""
Realised = TypeVar("Realised", TileInstruction, AttentionBlock, LoopWay)


def refuse_spills(
    source: Source, found: Mapping[str, Resources], avoid: Sequence[Avoided], machine: Machine
) -> None:
    """BuiltBadly if kernels spill that may be realised otherwise; ToolFailed if one spills that may not.

    `avoid` is what they were built with.
    """
    spilling = [kernel for kernel in source.kernels if found[kernel.symbol].spilled]
    if not spilling:
        return
    what = "; ".join(f"kernel {k.symbol} spills {found[k.symbol].spilled} bytes" for k in spilling)
    at = ", ".join(dict.fromkeys(name for kernel in spilling for name in kernel.origins))
    instead = [_instead(k, source, found[k.symbol], avoid, machine) for k in spilling]
    if None in instead:
        raise ToolFailed(what, at, HINT)
    raise BuiltBadly(what, at, HINT, tuple(each for each in instead if each is not None))


def _instead(
    kernel: manifest.Kernel,
    source: Source,
    used: Resources,
    avoid: Sequence[Avoided],
    machine: Machine,
) -> Avoided | None:
    """What a kernel that spills must be built without; None if nothing is left to do without."""
    last = LOOPS[-1].name
    way = source.ways.get(kernel.symbol, last)
    most = registers_of(int(kernel.block[0]), machine)
    if used.registers < most and not has_room(avoid, kernel.origins):
        because = f"{used.spilled} bytes spilled with {used.registers} of {most} registers"
        return Avoided(kernel.origins, CROWDED, because)
    if way == last:
        return None
    return Avoided(kernel.origins, way, f"{used.spilled} bytes spilled with {way}")


def registers_of(workers: int, machine: Machine) -> int:
    """Registers that a thread can have in a group of so many; warps get them in multiples of 8 per thread."""
    return min(machine.registers_per_thread, machine.registers // workers // 8 * 8)


def lighter(offered: Sequence[Realised], avoided: Collection[str]) -> tuple[Realised, ...]:
    """Those offered that hold less in a worker's registers than every one of them whose name is avoided."""
    held = [way.held for way in offered if way.name in avoided]
    return tuple(way for way in offered if not held or way.held < min(held))


def avoided(avoid: Sequence[Avoided], origins: Collection[str]) -> dict[str, str]:
    """What launches of these nodes must not be realised by, and why."""
    return {a.way: a.because for a in avoid if set(origins) <= set(a.origins)}


def has_room(avoid: Sequence[Avoided], origins: Collection[str]) -> bool:
    """Whether launches of these nodes spilled only so that more groups are resident."""
    return CROWDED in avoided(avoid, origins)


def loop_way(avoid: Sequence[Avoided], origins: Collection[str]) -> LoopWay:
    """The fastest realisation of plain loops that did not spill; the last one is never avoided."""
    return lighter(LOOPS, avoided(avoid, origins))[0]


def spilled_whole(avoid: Sequence[Avoided]) -> frozenset[str]:
    """The model's nodes whose kernels spill however their loops are realised: several smaller ones must do."""
    last = next(way.name for way in reversed(LOOPS) if not way.small)
    return frozenset(name for each in avoid if each.way == last for name in each.origins)
