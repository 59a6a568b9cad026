"""The part of scheduling that all targets share, as passes with contracts: outputs in place, fusion, views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from unistack_aot.ir.passes import Pass, sequence
from unistack_aot.mcir.canonical import closed, opened
from unistack_aot.mcir.program import Program
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.fusion import fuse
from unistack_aot.schedule.tidy import tidy_kernels
from unistack_aot.schedule.views import alias_reinterpretations, write_outputs_in_place


@dataclass(frozen=True, slots=True)
class Work:
    """A program under way, its constants by digest, and the decisions so far."""

    program: Program
    constants: Mapping[str, NDArray[Any]]
    decisions: tuple[Decision, ...] = ()


def _outputs(work: Work) -> Work:
    return replace(work, program=write_outputs_in_place(work.program))


def _tidy(work: Work) -> Work:
    return replace(work, program=tidy_kernels(work.program, work.constants))


def _fuse(work: Work) -> Work:
    program, decisions = fuse(work.program)
    return replace(work, program=program, decisions=(*work.decisions, *decisions))


def _views(work: Work) -> Work:
    return replace(work, program=alias_reinterpretations(work.program))


def _canonical(work: Work) -> Work:
    program = work.program.map_launches(lambda launch: closed(opened(launch), launch))
    return replace(work, program=program)


def _facts(*names: str) -> frozenset[str]:
    return frozenset(names)


SHARED = sequence(
    (
        Pass("outputs-in-place", _outputs, _facts("lowered"), _facts("outputs-in-place")),
        Pass("tidy-kernels", _tidy, _facts("lowered"), _facts("no-unit-loops")),
        Pass("fuse", _fuse, _facts("outputs-in-place", "no-unit-loops"), _facts("fused")),
        Pass("views", _views, _facts("fused"), _facts("views")),
        Pass("canonical-names", _canonical, _facts("fused"), _facts("canonical")),
    ),
    given=("lowered",),
)
"""Every target's first passes, in order; a wrong order fails when this module is imported."""


def prepare(
    program: Program, constants: Mapping[str, NDArray[Any]]
) -> tuple[Program, tuple[Decision, ...]]:
    """The fused program with canonical kernels, and why."""
    done = SHARED.run(Work(program, constants))
    return done.program, done.decisions
