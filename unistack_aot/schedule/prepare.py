"""The parts of scheduling that all targets share, as passes with contracts.

Before a target decides its kernels: outputs in place, fusion, views. After that: memory of dead operands. Not here:
what a target decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Range, Ranges
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.passes import Pass, sequence
from unistack_aot.mcir.canonical import closed, opened
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.stages.prepared import PREPARED
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.stages.stage import Stage
from unistack_aot.mcir.verify_program import verify_program
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.fusion import fuse
from unistack_aot.schedule.memory_reuse import reuse_memory
from unistack_aot.schedule.tidy import tidy_kernels
from unistack_aot.schedule.views import (
    alias_reinterpretations,
    without_unused,
    write_outputs_in_place,
)

EACH_PASS = 2  # the verification level from which every pass is checked


@dataclass(frozen=True, slots=True)
class Work:
    """A program under way, its constants by digest, bounds of its dimensions, the machine, and the decisions so far.

    `small` are the model's nodes of which no large kernels may be made.
    """

    program: Program
    constants: Mapping[str, NDArray[Any]]
    ranges: Ranges = field(default_factory=dict[str, Range])
    machine: Machine | None = None
    decisions: tuple[Decision, ...] = ()
    small: frozenset[str] = frozenset()


def _outputs(work: Work) -> Work:
    return replace(work, program=write_outputs_in_place(work.program))


def _tidy(work: Work) -> Work:
    return replace(work, program=tidy_kernels(work.program, work.constants))


def _fuse(work: Work) -> Work:
    program, decisions = fuse(work.program, work.ranges, work.machine, work.small)
    return replace(work, program=program, decisions=(*work.decisions, *decisions))


def _views(work: Work) -> Work:
    return replace(work, program=alias_reinterpretations(work.program))


def _canonical(work: Work) -> Work:
    program = work.program.map_launches(lambda launch: closed(opened(launch), launch))
    return replace(work, program=program)


def _used(work: Work) -> Work:
    return replace(work, program=without_unused(work.program))


def _in_place(work: Work) -> Work:
    program, decisions = reuse_memory(work.program, work.ranges)
    return replace(work, program=program, decisions=(*work.decisions, *decisions))


def _facts(*names: str) -> frozenset[str]:
    return frozenset(names)


SHARED = sequence(
    (
        Pass("outputs-in-place", _outputs, _facts("lowered"), _facts("outputs-in-place")),
        Pass("tidy-kernels", _tidy, _facts("lowered"), _facts("no-unit-loops")),
        Pass("fuse", _fuse, _facts("outputs-in-place", "no-unit-loops"), _facts("fused")),
        Pass("views", _views, _facts("fused"), _facts("views")),
        Pass("canonical-names", _canonical, _facts("fused"), _facts("canonical")),
        Pass("used-buffers", _used, _facts("views"), _facts("used-buffers")),
    ),
    given=("lowered",),
)
"""Every target's first passes, in order; a wrong order fails when this module is imported."""

LAST = sequence(
    (
        Pass("memory-in-place", _in_place, _facts("roles"), _facts("memory-in-place")),
        Pass("used-buffers", _used, _facts("memory-in-place"), _facts("used-buffers")),
    ),
    given=("roles",),
)
"""Every target's last passes, on kernels whose loops all have their roles."""


def prepare(
    program: Program,
    constants: Mapping[str, NDArray[Any]],
    ranges: Ranges | None = None,
    level: int = 1,
    machine: Machine | None = None,
    small: frozenset[str] = frozenset(),
) -> tuple[Program, tuple[Decision, ...]]:
    """The fused program with canonical kernels, and why; verification level 2 checks it after each pass.

    The machine's numbers say which maps are computed again rather than stored; without one, none that costs anything.
    What the model's nodes `small` become is fused less than anything else.
    """
    work = Work(program, constants, ranges or {}, machine, small=small)
    done = SHARED.run(work, _checks(PREPARED, level))
    return done.program, done.decisions


def finish(
    program: Program, ranges: Ranges, level: int = 1
) -> tuple[Program, tuple[Decision, ...]]:
    """A program whose kernels a target has decided, with results in the memory of dead operands, and why."""
    done = LAST.run(Work(program, {}, ranges), _checks(SCHEDULED, level))
    return done.program, done.decisions


def _checks(stage: Stage, level: int) -> Callable[[Pass[Work], Work], None]:
    """What sees the program after each pass: the verifier, from level 2 on."""

    def check(step: Pass[Work], work: Work) -> None:
        if level < EACH_PASS:
            return
        try:
            verify_program(work.program, stage, work.ranges)
        except IRError as fault:
            raise IRError(f"after pass {step.name}: {fault.what}", at=fault.at) from fault

    return check
