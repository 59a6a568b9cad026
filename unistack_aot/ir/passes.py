"""Passes with contracts: a bad order fails when it is written. Not here: any pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from unistack_aot.base.errors import IRError

P = TypeVar("P")


@dataclass(frozen=True)
class Pass(Generic[P]):
    """A function over programs with its contract: small named facts such as "typed"."""

    name: str
    function: Callable[[P], P]
    needs: frozenset[str] = frozenset()
    gives: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sequence(Generic[P]):
    """Passes in an order whose contracts hold."""

    passes: tuple[Pass[P], ...]
    facts: frozenset[str]

    def run(self, program: P, after: Callable[[Pass[P], P], None] = lambda step, made: None) -> P:
        """Apply every pass; `after(pass, program)` sees each result."""
        for step in self.passes:
            program = step.function(program)
            after(step, program)
        return program


def sequence(passes: Iterable[Pass[P]], given: Iterable[str] = ()) -> Sequence[P]:
    """Check the order: each need was given, by a pass or from the start, and is unbroken since."""
    facts, done = frozenset(given), tuple(passes)
    broken: dict[str, str] = {}
    for step in done:
        for fact in sorted(step.needs - facts):
            raise IRError(
                f"pass {step.name} needs {fact!r}, which "
                + (f"pass {broken[fact]} breaks" if fact in broken else "nothing before it gives")
            )
        broken |= dict.fromkeys(step.breaks, step.name)
        facts = (facts - step.breaks) | step.gives
    return Sequence(done, facts)
