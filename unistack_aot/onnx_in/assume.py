"""What a model takes for granted about its dimensions, found where two extents must be one.

`height//2 = 2*(height//4)` holds if height is a multiple of 4; `min(512, tokens) = tokens` if there
are at most 512; an unnamed batch equals another one; a batch that an exporter wrote into a shape
has that one size. Each becomes a declaration, so that the
compiled model checks it. Not here: the import that starts again under it (importer.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from unistack_aot.base.symbolic import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    linear_split,
    simplify,
    substitute,
    symbol,
    symbols,
    terms,
    text,
)
from unistack_aot.onnx_in.dims import LARGEST, Declared, DimTable, as_ranges


@dataclass(frozen=True)
class Assumption:
    """A fact, as declarations of dimensions, and what it rests on."""

    declared: Declared
    sentence: str


class Assumed(Exception):
    """Stops an import that must start again under one more assumption."""

    def __init__(self, assumption: Assumption) -> None:
        super().__init__(assumption.sentence)
        self.assumption = assumption


def assume_equal(
    left: Dim, right: Dim, table: DimTable, where: str, stretches: bool = False
) -> Assumption | None:
    """The weakest fact of the kinds above that makes both extents one; None if there is none.

    One that `stretches` gets no value of its own: 1 would do as well.
    """
    names = sorted(symbols(left) | symbols(right))
    found = _same_name(left, right, table)
    for name in names:
        found = found or _upper_bound(left, right, name, table)
    for name in names:
        found = found or _lower_bound(left, right, name, table)
    for name in names:
        found = found or _multiple(left, right, name, table)
    for name in () if stretches else names:
        found = found or _only_value(left, right, name, table)
    if found is None:
        return None
    declared, fact = found
    return Assumption(declared, f"{fact}, because {where} needs {text(left)} = {text(right)}")


def _same_name(left: Dim, right: Dim, table: DimTable) -> tuple[Declared, str] | None:
    order = list(table.names.values())
    pair = [name for side in (left, right) for name in symbols(side) if side is symbol(name)]
    if len(pair) != 2 or any(name not in order for name in pair):
        return None
    first, second = sorted(pair, key=order.index)
    (a, b), (c, d) = table.ranges[first], table.ranges[second]
    high = b if d is None else d if b is None else min(b, d)
    span: dict[str, int | str | tuple[int, ...]] = {second: _quoted(first)}
    if high is not None:
        span[first] = (max(a, c), high)
    return span, f"{second} is {first}"


def _quoted(name: str) -> str:
    return text(symbol(name))


def _upper_bound(left: Dim, right: Dim, name: str, table: DimTable) -> tuple[Declared, str] | None:
    low, high = table.ranges.get(name, (1, None))
    for limit in sorted(_limits(left, name) | _limits(right, name)):
        if limit < low or (high is not None and high <= limit):
            continue
        ranges = {**as_ranges(table), name: (low, limit)}
        if simplify(left, ranges) == simplify(right, ranges):
            return {name: (low, limit)}, f"{name} is at most {limit}"
    return None


def _lower_bound(left: Dim, right: Dim, name: str, table: DimTable) -> tuple[Declared, str] | None:
    low, high = table.ranges.get(name, (1, None))
    top = LARGEST if high is None else high
    for limit in sorted(_limits(left, name) | _limits(right, name)):
        ranges = {**as_ranges(table), name: (limit, top)}
        if low < limit <= top and simplify(left, ranges) == simplify(right, ranges):
            return {name: (limit, top)}, f"{name} is at least {limit}"
    return None


def _limits(value: Dim, name: str) -> set[int]:
    """Numbers that this symbol is limited to by a minimum."""
    found: set[int] = set()
    for atom in _atoms(value):
        if isinstance(atom, Min) and symbol(name) in atom.args:
            found |= {arg for arg in atom.args if isinstance(arg, int)}
    return found


def _multiple(left: Dim, right: Dim, name: str, table: DimTable) -> tuple[Declared, str] | None:
    divisors = sorted(_divisors(left, name) | _divisors(right, name))
    candidates: list[int] = sorted({*divisors, lcm(*divisors)} - {1})
    low, high = table.ranges.get(name, (1, None))
    for factor in candidates:
        part = f"{name}.{factor}"
        env = {name: symbol(part) * factor}
        ranges = {**as_ranges(table), part: (1, None)}
        sides = [simplify(substitute(side, env), ranges) for side in (left, right)]
        if sides[0] != sides[1] or (high is not None and high < factor):
            continue
        declared: dict[str, int | str | tuple[int, ...]] = {name: f"{factor}*{_quoted(part)}"}
        if high is not None:
            declared[part] = (max(1, -(-low // factor)), high // factor)
        return declared, f"{name} is a multiple of {factor}"
    return None


def _only_value(left: Dim, right: Dim, name: str, table: DimTable) -> tuple[Declared, str] | None:
    """The one value that solves an equation which is linear in a single name."""
    factor, rest = linear_split(left - right, name) or (0, 0)
    if not isinstance(factor, int) or not isinstance(rest, int) or factor == 0 or rest % factor:
        return None
    value = -rest // factor
    low, high = table.ranges.get(name, (1, None))
    if value < low or (high is not None and high < value):
        return None
    return {name: value}, f"{name} is {value}"


def _divisors(value: Dim, name: str) -> set[int]:
    """Numbers that an expression with this symbol is divided by."""
    found: set[int] = set()
    for atom in _atoms(value):
        match atom:
            case FloorDiv(_, int() as by) | Mod(_, int() as by) if name in atom.symbols:
                found.add(by)
            case _:
                pass
    return found


def _atoms(value: Dim) -> Iterator[Atom]:
    """Every atom inside an expression."""
    stack: list[Dim] = [value]
    while stack:
        for _, atom in terms(stack.pop())[1]:
            for factor in atom.factors if isinstance(atom, Product) else (atom,):
                yield factor
                match factor:
                    case FloorDiv(numerator, denominator):
                        stack += [numerator, denominator]
                    case Mod(inner, divisor):
                        stack += [inner, divisor]
                    case Min(args) | Max(args):
                        stack += args
                    case _:
                        pass
