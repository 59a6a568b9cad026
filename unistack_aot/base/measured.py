"""A number with its unit and where it comes from, and how such numbers are shown.

Not here: the collection of a machine's numbers (hw/).
"""

from __future__ import annotations

from dataclasses import dataclass

_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_FRACTION = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p"))
_BINARY = ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"), (1.0, ""))


@dataclass(frozen=True, slots=True)
class Measured:
    """A value in base units (B, B/s, s, Hz, FLOP/s, ...) and where it comes from.

    `source` is a probe's name or a citation; `spread` is (highest - lowest) / median of repeats.
    """

    value: float
    unit: str
    source: str
    spread: float | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        if not self.unit or not self.source:
            raise ValueError(f"the number {self.value} needs a unit and a source")

    def __str__(self) -> str:
        shown = quantity(self.value, self.unit)
        return shown if self.spread is None else f"{shown} +-{self.spread:.1%}"


def quantity(value: float, unit: str) -> str:
    """The value with a fitting prefix: 1.2 GB/s, 3.4 us, 24.6 MiB, 0.3; unit "1" shows no unit."""
    if unit == "1":
        return _digits(value)
    steps = _BINARY if unit == "B" else _FRACTION if unit == "s" else _DECIMAL
    size = abs(value)
    for scale, prefix in steps:
        # 0.9995 would be shown as 1.00e3 of the smaller unit, so the larger one takes it
        if size >= scale * 0.9995:
            return f"{_digits(value / scale)} {prefix}{unit}"
    scale, prefix = steps[0] if size == 0 else steps[-1]
    return f"{_digits(value / scale)} {prefix}{unit}"


def _digits(value: float) -> str:
    """Three significant digits without an exponent, whole numbers without a point."""
    if value == int(value) and abs(value) < 10_000:
        return str(int(value))
    size = abs(value)
    places = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    if 0 < size < 0.995:
        return f"{value:.2g}"
    return f"{value:.{places}f}"
