"""Scheduled: every loop has its role, every contraction its tile instruction."""

from __future__ import annotations

from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.mcir.nodes import (
    Attend,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Let,
    Loop,
    Role,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    When,
)
from unistack_aot.mcir.stages.stage import Stage

TOGETHER = (Role.GROUP, Role.LANE)


def _workers_exist(kernel: Kernel, stmt: Stmt) -> Yes | No:
    """Roles of a unit's workers only where a kernel says how many there are."""
    if isinstance(stmt, Loop | Fold) and stmt.role in TOGETHER and not kernel.group:
        return No(f"role {stmt.role.value} in a kernel without a group")
    if isinstance(stmt, Sync) and not kernel.group:
        return No("sync in a kernel without a group")
    return YES


def _realised(kernel: Kernel, stmt: Stmt) -> Yes | No:
    """Every contraction and attention names the tile instruction that realises it."""
    if isinstance(stmt, Contract | Attend) and not stmt.via:
        return No("no tile instruction is chosen")
    return YES


SCHEDULED = Stage(
    "scheduled",
    statements=frozenset(
        [Let, Store, Fold, Loop, Stream, Tile, Fill, Contract, Drain, Attend, When, Sync]
    ),
    roles=frozenset(Role) - {Role.MAP},
    rules=(_workers_exist, _realised),
)
