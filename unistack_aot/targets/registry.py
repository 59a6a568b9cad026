"""The targets there are; a new one adds its name here and nowhere else."""

from __future__ import annotations

from unistack_aot.base.errors import BadInput
from unistack_aot.targets.cpu import target as cpu
from unistack_aot.targets.cuda.target import CUDA, EMULATOR
from unistack_aot.targets.target import Target

TARGETS: dict[str, Target] = {"cpu": cpu, "cuda": CUDA, "emulator": EMULATOR}


def split_name(written: str) -> tuple[Target, str | None]:
    """The target and level of "cpu" or "cpu:x86-64-v3"; BadInput lists the known ones."""
    family, _, level = written.partition(":")
    target = TARGETS.get(family)
    if target is None:
        raise BadInput(f"no target is called {family!r}", hint=f"use one of {', '.join(TARGETS)}")
    return target, level or None
