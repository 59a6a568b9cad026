"""What follows from ranges of symbols: bounds and simplification.

A range is (lowest, highest), both inclusive; None means unbounded; a symbol without a range is at
least 0. Ends may themselves be expressions (a loop index in 0 .. N-1).
Not here: rewriting that holds for all values (expr.py does it while building).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from .expr import Dim, Sym, add, floordiv, maximum, minimum, modulo, multiply, of_atom, scale
from .nodes import Atom, FloorDiv, Max, Min, Mod, Product, Symbol, Terms
from .query import linear_split, substitute

Interval: TypeAlias = tuple[int | None, int | None]
Range: TypeAlias = "tuple[Dim | None, Dim | None]"
Ranges: TypeAlias = Mapping[str, Range]
_Frozen: TypeAlias = "tuple[tuple[str, Dim | None, Dim | None], ...]"


def bounds(value: Dim, ranges: Ranges) -> Interval:
    """Inclusive bounds (lowest, highest) that hold for every value in the ranges; None: unknown."""
    if isinstance(value, int):
        return value, value
    return _bounds(value, _relevant(value, ranges))


def simplify(value: Dim, ranges: Ranges) -> Dim:
    """An equal expression, simpler where the ranges decide a quotient, remainder, min or max."""
    if isinstance(value, int):
        return value
    return _simplify(value, _relevant(value, ranges))


def _relevant(value: Sym, ranges: Ranges) -> _Frozen:
    """The ranges that matter for value, hashable, closed over the symbols in their ends."""
    found: list[tuple[str, Dim | None, Dim | None]] = []
    names = list(value.symbols)
    seen = set(names)
    while names:
        name = names.pop()
        span = ranges.get(name)
        if span is None:
            continue
        found.append((name, *span))
        for end in span:
            if isinstance(end, Sym):
                names += end.symbols - seen
                seen |= end.symbols
    if len(found) > 1:
        found.sort(key=_name)
    return tuple(found)


def _name(entry: tuple[str, Dim | None, Dim | None]) -> str:
    return entry[0]


# --- bounds --------------------------------------------------------------------------------------


@lru_cache(1 << 17)
def _bounds(value: Sym, frozen: _Frozen) -> Interval:
    table = {name: (low, high) for name, low, high in frozen}
    low, high = _sum_interval(value, table)
    for name, *ends in frozen:
        if name in value.symbols and any(isinstance(end, Sym) for end in ends):
            more = _eliminated(value, name, table, frozen)
            low, high = _larger(low, more[0]), _smaller(high, more[1])
    return low, high


def _eliminated(value: Sym, name: str, table: Ranges, frozen: _Frozen) -> Interval:
    """Bounds after putting the symbolic ends of one symbol in its place, where it is linear."""
    split = linear_split(value, name)
    if split is None:
        return None, None
    coeff, _ = split
    sign = _sign(coeff, table)
    low_end, high_end = table[name]
    if sign < 0:
        low_end, high_end = high_end, low_end
    if sign == 0:
        return None, None
    without = tuple(entry for entry in frozen if entry[0] != name)
    low = high = None
    if low_end is not None and name not in _free(low_end):
        low = _known(substitute(value, {name: low_end}), without)[0]
    if high_end is not None and name not in _free(high_end):
        high = _known(substitute(value, {name: high_end}), without)[1]
    return low, high


def _free(value: Dim) -> frozenset[str]:
    return frozenset() if isinstance(value, int) else value.symbols


def _known(value: Dim, frozen: _Frozen) -> Interval:
    return (value, value) if isinstance(value, int) else _bounds(value, frozen)


def _sign(value: Dim, table: Ranges) -> int:
    """1 if value >= 0 throughout, -1 if value <= 0 throughout, 0 if not known."""
    low, high = _interval(value, table)
    if low is not None and low >= 0:
        return 1
    return -1 if high is not None and high <= 0 else 0


def _larger(one: int | None, two: int | None) -> int | None:
    return two if one is None else one if two is None else max(one, two)


def _smaller(one: int | None, two: int | None) -> int | None:
    return two if one is None else one if two is None else min(one, two)


def _interval(value: Dim, table: Ranges) -> Interval:
    return (value, value) if isinstance(value, int) else _sum_interval(value, table)


def _sum_interval(value: Sym, table: Ranges) -> Interval:
    low: int | None = value.const
    high: int | None = value.const
    for c, atom in value.terms:
        below, above = _atom_interval(atom, table)
        if c < 0:
            below, above = above, below
        low = None if low is None or below is None else low + c * below
        high = None if high is None or above is None else high + c * above
    return low, high


def _atom_interval(atom: Atom, table: Ranges) -> Interval:
    match atom:
        case Symbol(name):
            low, high = table.get(name, (0, None))
            return (
                None if low is None else _interval(low, _less(table, name))[0],
                None if high is None else _interval(high, _less(table, name))[1],
            )
        case Product(factors):
            product: Interval = (1, 1)
            for factor in factors:
                product = _product_interval(product, _atom_interval(factor, table))
            return product
        case FloorDiv(numerator, denominator):
            return _quotient_interval(_interval(numerator, table), _interval(denominator, table))
        case Mod(inner, divisor):
            return _remainder_interval(_interval(inner, table), _interval(divisor, table))
        case Min(args):
            return _minimum_interval([_interval(arg, table) for arg in args])
        case Max(args):
            negated = [_negated(_interval(arg, table)) for arg in args]
            return _negated(_minimum_interval(negated))


def _less(table: Ranges, name: str) -> Ranges:
    """The table without one name, so that ends that refer to each other can not loop."""
    if all(not isinstance(end, Sym) for end in table.get(name, ())):
        return table
    return {**table, name: (None, None)}


def _negated(span: Interval) -> Interval:
    low, high = span
    return None if high is None else -high, None if low is None else -low


def _minimum_interval(spans: list[Interval]) -> Interval:
    lows = [low for low, _ in spans]
    highs = [high for _, high in spans if high is not None]
    low = None if None in lows else min(low for low in lows if low is not None)
    return low, min(highs) if highs else None


def _product_interval(left: Interval, right: Interval) -> Interval:
    (a, b), (c, d) = left, right
    if a is not None and b is not None and c is not None and d is not None:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None if b is None or d is None else b * d
    if b is not None and d is not None and b <= 0 and d <= 0:
        return b * d, None
    if a is not None and d is not None and a >= 0 and d <= 0:
        return None, a * d
    if b is not None and c is not None and b <= 0 and c >= 0:
        return None, b * c
    return (0, 0) if left == (0, 0) or right == (0, 0) else (None, None)


def _quotient_interval(value: Interval, by: Interval) -> Interval:
    (low, high), (least, most) = value, by
    if least is None or least < 1:
        return None, None
    below: int | None = None
    above: int | None = None
    if low is not None:
        if low < 0:
            below = low // least
        else:
            below = 0 if most is None else low // most
    if high is not None:
        if high >= 0:
            above = high // least
        else:
            above = -1 if most is None else high // most
    return below, above


def _remainder_interval(value: Interval, by: Interval) -> Interval:
    (low, high), (least, most) = value, by
    if least is None or least < 1:
        return None, None
    if low is not None and high is not None:
        if low >= 0 and high < least:
            return low, high
        if least == most and low // least == high // least:
            return low % least, high % least
    above = None if most is None else most - 1
    if low is not None and low >= 0:
        above = _smaller(above, high)
    return 0, above


# --- simplification ------------------------------------------------------------------------------


@lru_cache(1 << 17)
def _simplify(value: Sym, frozen: _Frozen) -> Dim:
    total: Dim = value.const
    for c, atom in value.terms:
        simpler = _simplify_atom(atom, frozen)
        low, high = _known(simpler, frozen)
        total = add(total, scale(simpler if low is None or low != high else low, c))
    while isinstance(total, Sym):
        joined = _joined(total)
        if joined is total:
            break
        total = joined
    return total


def _within(value: Dim, frozen: _Frozen) -> Dim:
    return value if isinstance(value, int) else _simplify(value, frozen)


def _simplify_atom(atom: Atom, frozen: _Frozen) -> Dim:
    match atom:
        case Symbol():
            return of_atom(atom)
        case Product(factors):
            product: Dim = 1
            for factor in factors:
                product = multiply(product, _simplify_atom(factor, frozen))
            return product
        case FloorDiv(numerator, denominator):
            return _quotient(_within(numerator, frozen), _within(denominator, frozen), frozen)
        case Mod(inner, divisor):
            return _remainder(_within(inner, frozen), _within(divisor, frozen), frozen)
        case Min(args):
            return minimum(*_extremes([_within(arg, frozen) for arg in args], frozen, 1))
        case Max(args):
            return maximum(*_extremes([_within(arg, frozen) for arg in args], frozen, -1))


def _split(value: Dim, by: int, frozen: _Frozen) -> tuple[int, Dim, Dim] | None:
    """(g, head, tail) with value == g*head + tail, 0 <= tail < g, g divides by; largest such g."""
    if isinstance(value, int):
        return None
    divisors = {g for c, _ in value.terms if (g := _gcd(c, by)) > 1} | {by}
    for g in sorted(divisors, reverse=True):
        head: Terms = tuple((c // g, atom) for c, atom in value.terms if c % g == 0)
        tail: Dim = value.const
        for c, atom in value.terms:
            if c % g:
                tail = add(tail, scale(of_atom(atom), c))
        low, high = _known(tail, frozen)
        if low is None or high is None or low // g != high // g:
            continue
        lifted: Dim = low // g
        for c, atom in head:
            lifted = add(lifted, scale(of_atom(atom), c))
        return g, lifted, add(tail, -g * (low // g))
    return None


def _gcd(left: int, right: int) -> int:
    while right:
        left, right = right, left % right
    return abs(left)


def _quotient(value: Dim, by: Dim, frozen: _Frozen) -> Dim:
    if isinstance(by, Sym):
        if isinstance(head := _symbolic_split(value, by, frozen), tuple):
            return head[0]
        return floordiv(value, by)
    split = _split(value, by, frozen) if by > 1 else None
    if split is None:
        return floordiv(value, by)
    g, head, _ = split
    return head if g == by else _quotient(head, by // g, frozen)


def _remainder(value: Dim, by: Dim, frozen: _Frozen) -> Dim:
    if isinstance(by, Sym):
        if isinstance(head := _symbolic_split(value, by, frozen), tuple):
            return head[1]
        return modulo(value, by)
    split = _split(value, by, frozen) if by > 1 else None
    if split is None:
        return modulo(value, by)
    g, head, tail = split
    return tail if g == by else add(scale(_remainder(head, by // g, frozen), g), tail)


def _symbolic_split(value: Dim, by: Sym, frozen: _Frozen) -> tuple[Dim, Dim] | None:
    """(q, r) with value == q*by + r and 0 <= r < by proved from the ranges."""
    quotient = floordiv(value, by)
    rest = value
    head: Dim = quotient
    atom = _last_quotient(quotient, by)
    if atom is not None:
        rest = atom.numerator
        head = add(quotient, scale(of_atom(atom), -1))
    low, _ = _known(rest, frozen)
    _, gap = _known(add(rest, scale(by, -1)), frozen)
    if low is not None and low >= 0 and gap is not None and gap < 0:
        return head, rest
    return None


def _last_quotient(value: Dim, by: Sym) -> FloorDiv | None:
    if isinstance(value, Sym):
        for c, atom in value.terms:
            if c == 1 and isinstance(atom, FloorDiv) and atom.denominator is by:
                return atom
    return None


def _extremes(args: list[Dim], frozen: _Frozen, sign: int) -> list[Dim]:
    """The arguments that can win: none that another one always beats (sign 1: the smaller wins)."""
    kept: list[Dim] = []
    for arg in args:
        if any(_never_beats(arg, other, frozen, sign) for other in kept):
            continue
        kept = [other for other in kept if not _never_beats(other, arg, frozen, sign)]
        kept.append(arg)
    return kept


def _never_beats(one: Dim, other: Dim, frozen: _Frozen, sign: int) -> bool:
    low, _ = _known(scale(add(one, scale(other, -1)), sign), frozen)
    return low is not None and low >= 0


def _joined(value: Sym) -> Dim:
    """One step of n*(v//n) + v%n == v or n*((v//n)%m) + v%n == v%(n*m), or value itself."""
    held = {atom: c for c, atom in value.terms}
    for c, atom in value.terms:
        if not isinstance(atom, Mod):
            continue
        quotient = floordiv(atom.value, atom.divisor)
        partner = scale(multiply(atom.divisor, quotient), c)
        if _contains(held, partner):
            taken = add(partner, scale(of_atom(atom), c))
            return add(add(value, scale(taken, -1)), scale(atom.value, c))
        for d, other in value.terms:
            if isinstance(other, Mod) and other.value is quotient and d == scale(atom.divisor, c):
                whole = modulo(atom.value, multiply(atom.divisor, other.divisor))
                taken = add(scale(of_atom(other), d), scale(of_atom(atom), c))
                return add(add(value, scale(taken, -1)), scale(whole, c))
    return value


def _contains(held: Mapping[Atom, int], wanted: Dim) -> bool:
    """Whether the terms of wanted are all present; its constant is made up for by the caller."""
    return isinstance(wanted, Sym) and all(held.get(a) == c for c, a in wanted.terms)
