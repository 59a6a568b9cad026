"""Prepared: kernels fused, results in place, layouts chosen; loops still without roles."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.mcir.stages.lowered import LOWERED

PREPARED = replace(LOWERED, name="prepared", layouts=True)
