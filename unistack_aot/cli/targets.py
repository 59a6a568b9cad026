"""Which targets can be built on this machine."""

from __future__ import annotations

from unistack_aot.base.errors import MissingTool
from unistack_aot.targets.registry import split_name

ON_THEIR_OWN = ("cpu", "cuda")
"""Targets built when none is named; the emulator's only on request."""


def default_targets() -> tuple[str, ...]:
    """Every target whose tools are here; MissingTool of the first one if there is none."""
    found: list[str] = []
    missing: list[MissingTool] = []
    for name in ON_THEIR_OWN:
        reason = missing_tool(name)
        if reason is None:
            found.append(name)
        else:
            missing.append(reason)
    if not found:
        raise missing[0]
    return tuple(found)


def missing_tool(name: str) -> MissingTool | None:
    """Why a target cannot be built here, or None."""
    target, level = split_name(name)
    try:
        target.levels(level)
    except MissingTool as reason:
        return reason
    return None
