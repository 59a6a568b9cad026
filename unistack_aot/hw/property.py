"""One entry of a property map: a measured value with its name and how it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from unistack_aot.base.measured import Measured, quantity

Mark = Literal["probe", "datasheet", "measured by others", "derived", "assumed"]
"""How a value is known.

probe: measured by our own lab on the named device. datasheet: the vendor's statement. measured by
others: a public measurement, cited. derived: arithmetic on other entries (the note says which).
assumed: no public number; the note says why this value was taken.
"""

MARKS: tuple[str, ...] = get_args(Mark)


@dataclass(frozen=True, slots=True, kw_only=True)
class Property(Measured):
    """A Measured that has a name ("dram.bandwidth"), a mark, a sample count and a note."""

    name: str
    mark: Mark
    samples: int = 0
    note: str = ""

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.name} = {quantity(self.value, self.unit)} ({self.mark}: {self.source})"


def derived(name: str, value: float, unit: str, note: str, *parents: Property) -> Property:
    """Return a quantity computed from `parents`, which become its source.

    Its spread is the sum of theirs: the first-order bound for a product or quotient.
    """
    names = ", ".join(parent.name for parent in parents)
    spreads = [parent.spread for parent in parents if parent.spread is not None]
    spread = sum(spreads) if spreads else None
    return Property(value, unit, names, spread, name=name, mark="derived", note=note)
