"""What nodes need of extents beside equality: at least so many. A range where one dimension decides, else a demand.

`keys` of 1 or more, three greatest of at least three, a window that fits its input. Not here: extents
that must be equal (assume.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.errors import TooFew
from unistack_aot.base.symbolic import Dim, bounds, evaluate, symbols, text
from unistack_aot.onnx_in.assume import Assumed, Assumption
from unistack_aot.onnx_in.dims import LARGEST, DimTable, as_ranges


@dataclass(frozen=True)
class Demand:
    """An expression of dimensions that no run may make negative, and what needs it."""

    value: Dim
    sentence: str


def demanded(extent: Dim, least: Dim, table: DimTable, where: str, what: str) -> Demand | None:
    """The demand that `extent` is at least `least`; None if it always is.

    Raises Assumed where a least value of one dimension says the same, TooFew if it never is.
    """
    spare = extent - least
    low, high = bounds(spare, as_ranges(table))
    if low is not None and low >= 0:
        return None
    if high is not None and high < 0:
        raise TooFew(what, extent, least)
    for name in sorted(symbols(spare)):
        value = _least_value(spare, name, table)
        if value is not None:
            _, top = table.ranges.get(name, (1, None))
            declared = {name: (value, LARGEST if top is None else top)}
            raise Assumed(
                Assumption(declared, f"{name} is at least {value}, because {where} {what}")
            )
    need = f"{where} {what}, which needs {text(extent)} >= {text(least)}"
    return Demand(spare, need)


def _least_value(spare: Dim, name: str, table: DimTable) -> int | None:
    """The least value of a dimension from which on, and only from there, `spare` is not negative."""
    low, high = table.ranges.get(name, (1, None))
    top = LARGEST if high is None else high
    ranges = as_ranges(table)

    def enough(value: int) -> bool:
        found, _ = bounds(spare, {**ranges, name: (value, top)})
        return found is not None and found >= 0

    if not enough(top):
        return None
    while low < top:
        middle = (low + top) // 2
        low, top = (low, middle) if enough(middle) else (middle + 1, top)
    lows = {n: span[0] for n, span in table.ranges.items()}
    others = {other: lows.get(other, 1) for other in symbols(spare) if other != name}
    exact = evaluate(spare, {**others, name: low - 1}) < 0  # bounds may be too wide
    return low if exact else None
