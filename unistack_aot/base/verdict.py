"""Answers that say why not: a predicate that refuses returns `No(reason)` instead of False."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class No:
    """A refusal with its reason; falsy, so `if not check(...)` reads naturally."""

    reason: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Yes:
    """An agreement; truthy."""

    def __bool__(self) -> bool:
        return True


YES = Yes()
