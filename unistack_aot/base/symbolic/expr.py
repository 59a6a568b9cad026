"""Interned integer expressions in canonical form, their arithmetic and their text.

A `Dim` is a Python int or a `Sym`: `const + sum(coeff * atom)`, with atoms from a closed set
(`Symbol`, `Product`, `FloorDiv`, `Mod`, `Min`, `Max`). Equal expressions are the same object.
Not here: anything that needs to know the range of a symbol (ranges.py).
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import gcd
from operator import index
from typing import Final, SupportsIndex, TypeAlias, final

from .nodes import (
    Atom,
    Factor,
    FloorDiv,
    Key,
    Max,
    Min,
    Mod,
    Node,
    Product,
    Symbol,
    Terms,
    maximum_atom,
    minimum_atom,
    names_in,
    product_atom,
    quotient_atom,
    remainder_atom,
    set_hash,
    sort_key,
    symbol_atom,
)

_MEMO: Final = 1 << 17


@final
class Sym(Node):
    """`const + sum(coeff * atom)` with at least one term; terms are sorted, coefficients not 0."""

    __slots__ = ("const", "terms")
    __match_args__ = ("const", "terms")
    const: int
    terms: Terms

    @property
    def key(self) -> Key:
        """What expressions are sorted by."""
        parts: list[Key | int] = [7, len(self.terms)]
        for c, atom in self.terms:
            parts += (atom.key, c)
        return (*parts, self.const)

    def __add__(self, other: Dim | SupportsIndex) -> Dim:
        return add(self, other if type(other) is Sym else _dim(other))

    def __radd__(self, other: Dim | SupportsIndex) -> Dim:
        return add(self, other if type(other) is Sym else _dim(other))

    def __sub__(self, other: Dim | SupportsIndex) -> Dim:
        return add(self, scale(_dim(other), -1))

    def __rsub__(self, other: Dim | SupportsIndex) -> Dim:
        return add(scale(self, -1), _dim(other))

    def __neg__(self) -> Dim:
        return scale(self, -1)

    def __mul__(self, other: Dim | SupportsIndex) -> Dim:
        return multiply(self, other if type(other) is Sym else _dim(other))

    def __rmul__(self, other: Dim | SupportsIndex) -> Dim:
        return multiply(self, other if type(other) is Sym else _dim(other))

    def __floordiv__(self, other: Dim | SupportsIndex) -> Dim:
        return floordiv(self, other if type(other) is Sym else _dim(other))

    def __rfloordiv__(self, other: Dim | SupportsIndex) -> Dim:
        return floordiv(_dim(other), self)

    def __mod__(self, other: Dim | SupportsIndex) -> Dim:
        return modulo(self, other if type(other) is Sym else _dim(other))

    def __rmod__(self, other: Dim | SupportsIndex) -> Dim:
        return modulo(_dim(other), self)

    def __repr__(self) -> str:
        return text(self)


Dim: TypeAlias = "int | Sym"

_sums: Final[dict[tuple[int, Terms], Sym]] = {}


def sum_of(const: int, terms: Terms) -> Dim:
    """The interned sum of terms that are sorted and merged already."""
    if not terms:
        return const
    found = _sums.get((const, terms))
    if found is None:
        found = Sym()
        found.const, found.terms = const, terms
        names = terms[0][1].symbols if len(terms) == 1 else names_in(atom for _, atom in terms)
        set_hash(found, (7, const, terms), names)
        found = _sums.setdefault((const, terms), found)
    return found


def _merged(const: int, coefficients: dict[Atom, int]) -> Dim:
    left = [(c, atom) for atom, c in coefficients.items() if c]
    left.sort(key=_term_key)
    return sum_of(const, tuple(left))


def _term_key(term: tuple[int, Atom]) -> Key:
    return term[1].key


def _dim(value: Dim | SupportsIndex) -> Dim:
    if isinstance(value, Sym):
        return value
    return value if type(value) is int else index(value)


def of_atom(atom: Atom) -> Sym:
    """The expression that is just this atom."""
    found = sum_of(0, ((1, atom),))
    assert isinstance(found, Sym)
    return found


def terms(value: Dim) -> tuple[int, Terms]:
    """The constant and the (coefficient, atom) pairs of an expression."""
    return (value, ()) if isinstance(value, int) else (value.const, value.terms)


def _lone_atom(value: Dim) -> Atom | None:
    if isinstance(value, Sym) and not value.const and len(value.terms) == 1:
        (c, atom), *_ = value.terms
        return atom if c == 1 else None
    return None


# --- arithmetic ----------------------------------------------------------------------------------


def symbol(name: str) -> Sym:
    """The named integer; the same object for the same name."""
    if not name:
        raise ValueError("a symbol needs a name")
    return of_atom(symbol_atom(name))


@lru_cache(_MEMO)
def add(left: Dim, right: Dim) -> Dim:
    """left + right."""
    if isinstance(left, int):
        if isinstance(right, int):
            return left + right
        return sum_of(left + right.const, right.terms)
    if isinstance(right, int):
        return sum_of(left.const + right, left.terms)
    sums: dict[Atom, int] = {atom: c for c, atom in left.terms}
    for c, atom in right.terms:
        sums[atom] = sums.get(atom, 0) + c
    return _merged(left.const + right.const, sums)


def scale(value: Dim, factor: int) -> Dim:
    """value * factor."""
    if isinstance(value, int):
        return value * factor
    if factor == 0:
        return 0
    return sum_of(value.const * factor, tuple((c * factor, atom) for c, atom in value.terms))


@lru_cache(_MEMO)
def multiply(left: Dim, right: Dim) -> Dim:
    """left * right, distributed over their terms."""
    if isinstance(left, int):
        return scale(right, left)
    if isinstance(right, int):
        return scale(left, right)
    sums: dict[Atom, int] = {}
    for c, atom in left.terms:
        sums[atom] = sums.get(atom, 0) + c * right.const
        for d, other in right.terms:
            both = _times(atom, other)
            sums[both] = sums.get(both, 0) + c * d
    for d, other in right.terms:
        sums[other] = sums.get(other, 0) + d * left.const
    return _merged(left.const * right.const, sums)


def _factors(atom: Atom) -> tuple[Factor, ...]:
    return atom.factors if isinstance(atom, Product) else (atom,)


def _times(left: Atom, right: Atom) -> Atom:
    together = [*_factors(left), *_factors(right)]
    together.sort(key=lambda factor: factor.key)
    return product_atom(tuple(together))


def _first(value: Sym) -> tuple[int, Atom]:
    return next(iter(value.terms))


def _exact(value: Dim, divisor: Sym) -> tuple[Dim, Dim]:
    """(q, r) with value == q * divisor + r; r holds what is not visibly a multiple of divisor."""
    if len(divisor.terms) > 1 or divisor.const:
        c, atom = _first(divisor)
        held = {atom: c for c, atom in terms(value)[1]}.get(atom, 0)
        if held % c == 0 and value == scale(divisor, held // c):
            return held // c, 0
        return 0, value
    unit, atom = _first(divisor)
    quotient: Dim = 0
    rest: Dim = terms(value)[0]
    for c, other in terms(value)[1]:
        left = list(_factors(other))
        for factor in _factors(atom):
            if factor not in left:
                break
            left.remove(factor)
        else:
            if c % unit == 0:
                part: Dim = 1 if not left else sum_of(0, ((1, _from_factors(left)),))
                quotient = add(quotient, scale(part, c // unit))
                continue
        rest = add(rest, sum_of(0, ((c, other),)))
    return quotient, rest


def _from_factors(factors: list[Factor]) -> Atom:
    return factors[0] if len(factors) == 1 else product_atom(tuple(factors))


@lru_cache(_MEMO)
def floordiv(value: Dim, by: Dim) -> Dim:
    """value // by, rounded towards minus infinity; ZeroDivisionError when by is 0."""
    if isinstance(by, Sym):
        quotient, rest = _exact(value, by)
        return quotient if rest == 0 else add(quotient, of_atom(quotient_atom(rest, by)))
    if isinstance(value, int):
        return value // by
    if by < 0:
        return floordiv(scale(value, -1), -by)
    if by <= 1:
        return value if by else 0 // by
    whole = tuple((c // by, atom) for c, atom in value.terms if c % by == 0)
    rest = tuple((c, atom) for c, atom in value.terms if c % by)
    quotient = sum_of(value.const // by, whole)
    return add(quotient, _proper_quotient(value.const % by, rest, by))


def _proper_quotient(const: int, rest: Terms, by: int) -> Dim:
    """(const + rest) // by for coefficients that by does not divide and 0 <= const < by."""
    if not rest:
        return 0
    shared = gcd(by, *(c for c, _ in rest))
    if shared > 1:
        smaller = sum_of(const // shared, tuple((c // shared, atom) for c, atom in rest))
        return floordiv(smaller, by // shared)
    if len(rest) == 1 and rest[0][0] == 1:
        match rest[0][1]:
            case FloorDiv(inner, int() as first):
                return floordiv(add(inner, const * first), first * by)
            case Mod(inner, int() as period) if const == 0 and period % by == 0:
                return modulo(floordiv(inner, by), period // by)
            case _:
                pass
    return of_atom(quotient_atom(sum_of(const, rest), by))


@lru_cache(_MEMO)
def modulo(value: Dim, by: Dim) -> Dim:
    """value % by with the sign of by; ZeroDivisionError when by is 0."""
    if isinstance(by, Sym):
        rest = _exact(value, by)[1]
        return 0 if rest == 0 else of_atom(remainder_atom(rest, by))
    if isinstance(value, int):
        return value % by
    if by < 0:
        return scale(modulo(scale(value, -1), -by), -1)
    if by <= 1:
        return 0 % by
    rest: Dim = sum_of(value.const % by, tuple((c, atom) for c, atom in value.terms if c % by))
    if isinstance(rest, int):
        return rest
    for c, atom in rest.terms:
        match atom:
            case Mod(inner, int() as period) if c * period % by == 0:
                outside = add(rest, sum_of(0, ((-c, atom),)))
                return modulo(add(outside, scale(inner, c)), by)
            case _:
                pass
    shared = gcd(by, *(c for c, _ in rest.terms))
    if shared == 1:
        return of_atom(remainder_atom(rest, by))
    smaller = sum_of(rest.const // shared, tuple((c // shared, atom) for c, atom in rest.terms))
    return add(scale(modulo(smaller, by // shared), shared), rest.const % shared)


def ceildiv(value: Dim, by: Dim) -> Dim:
    """value / by rounded up, for a positive by."""
    return floordiv(add(add(value, by), -1), by)


def minimum(*values: Dim) -> Dim:
    """The smallest of one or more expressions."""
    return _extreme(values, smallest=True)


def maximum(*values: Dim) -> Dim:
    """The largest of one or more expressions."""
    return _extreme(values, smallest=False)


@lru_cache(_MEMO)
def _extreme(values: tuple[Dim, ...], smallest: bool) -> Dim:
    flat: list[Dim] = []
    for value in values:
        match _lone_atom(value):
            case Min(args) if smallest:
                flat += args
            case Max(args) if not smallest:
                flat += args
            case _:
                flat.append(value)
    kept: list[Dim] = []
    for value in flat:
        _keep(kept, value, smallest)
    if not kept:
        raise ValueError("minimum and maximum need at least one expression")
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=sort_key)
    args = tuple(kept)
    return of_atom(minimum_atom(args) if smallest else maximum_atom(args))


def _keep(kept: list[Dim], value: Dim, smallest: bool) -> None:
    """Add value to kept unless a member is always as extreme; drop the member value beats."""
    for place, other in enumerate(kept):
        gap = add(value, scale(other, -1))
        if isinstance(gap, int):
            if (gap < 0) == smallest:
                kept[place] = value
            return
    kept.append(value)


# --- text ----------------------------------------------------------------------------------------

_PLAIN: Final = re.compile(r"(?!(?:min|max)\Z)[A-Za-z_][A-Za-z0-9_.]*\Z")


@lru_cache(_MEMO)
def text(value: Dim) -> str:
    """The expression as text, e.g. "4*N + (M + 3)//4 - 1"; parse() gives the same object back."""
    if isinstance(value, int):
        return str(value)
    parts: list[str] = []
    for c, atom in value.terms:
        body = _atom_text(atom) if abs(c) == 1 else f"{abs(c)}*{_tight(atom)}"
        sign = "-" if c < 0 else "+"
        if parts:
            parts.append(f" {sign} {body}")
        else:
            parts.append(f"-{_tight(atom) if c == -1 else body}" if c < 0 else body)
    if value.const:
        parts.append(f" {'-' if value.const < 0 else '+'} {abs(value.const)}")
    return "".join(parts)


def _atom_text(atom: Atom) -> str:
    match atom:
        case Symbol(name):
            return name if _PLAIN.match(name) else _quoted(name)
        case Product(factors):
            return "*".join(_tight(factor) for factor in factors)
        case FloorDiv(numerator, denominator):
            return f"{_operand(numerator)}//{_operand(denominator)}"
        case Mod(value, divisor):
            return f"{_operand(value)}%{_operand(divisor)}"
        case Min(args):
            return f"min({', '.join(map(text, args))})"
        case Max(args):
            return f"max({', '.join(map(text, args))})"


def _quoted(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _tight(atom: Atom) -> str:
    body = _atom_text(atom)
    return f"({body})" if isinstance(atom, FloorDiv | Mod) else body


def _operand(value: Dim) -> str:
    body = text(value)
    alone = _lone_atom(value)
    if isinstance(alone, Symbol | Min | Max) or (isinstance(value, int) and value >= 0):
        return body
    return f"({body})"
