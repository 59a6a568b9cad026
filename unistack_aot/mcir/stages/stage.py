"""The form of a stage's rules: statements, roles and facts that kernels of that stage keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unistack_aot.base.verdict import No, Yes
from unistack_aot.mcir.nodes import Kernel, Role, Stmt


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: allowed statements and roles, whether buffers may have layouts, and further rules by statement."""

    name: str
    statements: frozenset[type[Stmt]]
    roles: frozenset[Role]
    layouts: bool = True
    rules: tuple[Callable[[Kernel, Stmt], Yes | No], ...] = ()
