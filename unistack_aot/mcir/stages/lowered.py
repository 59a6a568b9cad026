"""Lowered: what a model computes as loops, before any decision."""

from __future__ import annotations

from unistack_aot.mcir.nodes import Fold, Let, Loop, Role, Store, When
from unistack_aot.mcir.stages.stage import Stage

LOWERED = Stage(
    "lowered",
    statements=frozenset([Let, Store, Fold, Loop, When]),
    roles=frozenset([Role.MAP, Role.SEQ]),
    layouts=False,
)
