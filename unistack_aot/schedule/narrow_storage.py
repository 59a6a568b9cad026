"""Values that every reader rounds to the same narrow type anyway: stored in that type, so that far memory moves half.

Not here: the launches with such buffers (storing_narrow.py), which readers round (targets know their tile
instructions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from unistack_aot.base.dtypes import DType
from unistack_aot.mcir.canonical import opened
from unistack_aot.mcir.program import Kind, Launch, Program
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.operator import or_same
from unistack_aot.schedule.storing_narrow import STORE_NARROW, Takes


def narrow_storage(program: Program, takes: Takes) -> tuple[Program, tuple[Decision, ...]]:
    """Arena buffers stored in the type to which all their readers round them."""
    launches = tuple(step for step in program.steps if isinstance(step, Launch))
    if len(launches) < len(program.steps):
        return program, ()
    shared = {b.alias_of for b in program.buffers} | {b.name for b in program.buffers if b.alias_of}
    known = cache(takes)
    chosen: dict[str, DType] = {}
    for buffer in program.buffers:
        if buffer.kind is Kind.ARENA and buffer.dtype.is_float and buffer.name not in shared:
            found = _wanted(buffer.name, launches, known)
            if found is not None and STORE_NARROW.check(launches, {buffer.name: found}, known):
                chosen[buffer.name] = found
    buffers = tuple(replace(b, dtype=chosen.get(b.name, b.dtype)) for b in program.buffers)
    done = or_same(STORE_NARROW(launches, chosen, known), launches)
    decisions = tuple(
        Decision("storage", name, dtype.name, "every reader rounds it to that type")
        for name, dtype in chosen.items()
    )
    return replace(program, buffers=buffers, steps=done), decisions


def _wanted(name: str, launches: Sequence[Launch], takes: Takes) -> DType | None:
    """The type to which the first reader of a buffer rounds it."""
    first = next((launch for launch in launches if name in launch.reads()), None)
    return None if first is None else takes(opened(first), name)
