"""A number about a machine, with its unit, where it came from and how much it scattered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

Mark = Literal["probe", "datasheet", "measured by others", "derived", "assumed"]
"""How a value is known.

probe: measured by our own lab on the named device. datasheet: the vendor's statement. measured by
others: a public measurement, cited. derived: arithmetic on other entries (the note says which).
assumed: no public number; the note says why this value was taken.
"""

MARKS: tuple[str, ...] = get_args(Mark)


@dataclass(frozen=True, slots=True)
class Measured:
    """One quantity: `value` in `unit`; `spread` is the relative half-width of the repeated samples
    (0 when unknown).
    """

    name: str
    value: float
    unit: str
    mark: Mark
    source: str
    spread: float = 0.0
    samples: int = 0
    note: str = ""

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.name} = {shown(self.value, self.unit)} ({self.mark}: {self.source})"


def derived(name: str, value: float, unit: str, note: str, *parents: Measured) -> Measured:
    """Return a quantity computed from `parents`; its spread is the sum of theirs (first-order bound
    of a product).
    """
    names = ", ".join(parent.name for parent in parents)
    spread = sum(parent.spread for parent in parents)
    return Measured(name, value, unit, "derived", names, spread=spread, note=note)


def renamed(quantity: Measured, name: str) -> Measured:
    """Return the same quantity under another name (an alias such as `far` for `dram`)."""
    return replace(quantity, name=name)


_DECIMAL = (
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "u"),
    (1e-9, "n"),
)
_BINARY = ((2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"), (1.0, ""))


def shown(value: float, unit: str) -> str:
    """Return `value` for people: three significant digits with a prefix (binary for bytes, decimal
    otherwise).
    """
    if unit in ("1", "") or value == 0:
        return f"{value:g}"
    scales = _BINARY if unit == "B" else _DECIMAL
    for scale, prefix in scales:
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.4g} {prefix}{unit}"
    scale, prefix = scales[-1]
    return f"{value / scale:.4g} {prefix}{unit}"
