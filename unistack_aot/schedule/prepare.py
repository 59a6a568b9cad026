"""The part of scheduling that all targets share: outputs in place, fusion, views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from unistack_aot.mcir.canonical import closed, opened
from unistack_aot.mcir.program import Program
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.fusion import fuse
from unistack_aot.schedule.tidy import tidy_kernels
from unistack_aot.schedule.views import alias_reinterpretations, write_outputs_in_place


def prepare(
    program: Program, constants: Mapping[str, NDArray[Any]]
) -> tuple[Program, tuple[Decision, ...]]:
    """The fused program with canonical kernels, and why."""
    program = tidy_kernels(write_outputs_in_place(program), constants)
    program, decisions = fuse(program)
    program = alias_reinterpretations(program)
    return program.map_launches(lambda launch: closed(opened(launch), launch)), decisions
