"""Kernels that need more registers than a thread has: refused, and scheduled again in ways that hold less.

Not here: what ptxas reports (build.py), the choice itself (legalize.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from unistack_aot.artifact import manifest
from unistack_aot.base.errors import ToolFailed
from unistack_aot.schedule.attention_blocks import AttentionBlock
from unistack_aot.schedule.tile_instruction import TileInstruction
from unistack_aot.targets.cuda.build import Resources
from unistack_aot.targets.target import Avoided, BuiltBadly, Source

HINT = "declare narrower ranges of dimensions, or choose another precision, so that other tiles fit"

Way = TypeVar("Way", TileInstruction, AttentionBlock)


def refuse_spills(source: Source, found: Mapping[str, Resources]) -> None:
    """BuiltBadly if kernels spill that may be realised otherwise; ToolFailed if one spills that may not."""
    spilling = [kernel for kernel in source.kernels if found[kernel.symbol].spilled]
    if not spilling:
        return
    what = "; ".join(f"kernel {k.symbol} spills {_size(k, found)}" for k in spilling)
    at = ", ".join(dict.fromkeys(name for kernel in spilling for name in kernel.origins))
    if any(kernel.symbol not in source.ways for kernel in spilling):
        raise ToolFailed(what, at, HINT)
    avoid = tuple(
        Avoided(
            kernel.origins,
            source.ways[kernel.symbol],
            f"{_size(kernel, found)} spilled with {source.ways[kernel.symbol]}",
        )
        for kernel in spilling
    )
    raise BuiltBadly(what, at, HINT, avoid)


def _size(kernel: manifest.Kernel, found: Mapping[str, Resources]) -> str:
    return f"{found[kernel.symbol].spilled} bytes"


def lighter(offered: Sequence[Way], avoided: Collection[str]) -> tuple[Way, ...]:
    """Those offered that hold less in a worker's registers than every one of them whose name is avoided."""
    held = [way.held for way in offered if way.name in avoided]
    return tuple(way for way in offered if not held or way.held < min(held))
