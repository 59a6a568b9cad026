"""The closed set of atoms of integer expressions, each interned: equal atoms are the same object.

Not here: sums of atoms and arithmetic (expr.py). The functions build an atom exactly as given;
expr.py brings the parts into canonical form first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final
from zlib import crc32

if TYPE_CHECKING:
    from .expr import Dim

Key: TypeAlias = tuple[Any, ...]


class Node:
    """What atoms and sums share: the names inside, and a hash that is equal in every run."""

    __slots__ = ("_hash", "symbols")
    symbols: frozenset[str]
    _hash: int

    def __hash__(self) -> int:
        return self._hash


class AtomNode(Node):
    """What atoms share: a key to sort by."""

    __slots__ = ("key",)
    key: Key


@final
class Symbol(AtomNode):
    """A named integer."""

    __slots__ = ("name",)
    __match_args__ = ("name",)
    name: str


@final
class Product(AtomNode):
    """Two or more atoms multiplied; none of them is a product."""

    __slots__ = ("factors",)
    __match_args__ = ("factors",)
    factors: tuple[Factor, ...]


@final
class FloorDiv(AtomNode):
    """Quotient rounded towards minus infinity; an int denominator is positive."""

    __slots__ = ("denominator", "numerator")
    __match_args__ = ("numerator", "denominator")
    numerator: Dim
    denominator: Dim


@final
class Mod(AtomNode):
    """Remainder of the floor division, with the divisor's sign; an int divisor is positive."""

    __slots__ = ("divisor", "value")
    __match_args__ = ("value", "divisor")
    value: Dim
    divisor: Dim


@final
class Min(AtomNode):
    """The smallest of two or more expressions."""

    __slots__ = ("args",)
    __match_args__ = ("args",)
    args: tuple[Dim, ...]


@final
class Max(AtomNode):
    """The largest of two or more expressions."""

    __slots__ = ("args",)
    __match_args__ = ("args",)
    args: tuple[Dim, ...]


Factor: TypeAlias = "Symbol | FloorDiv | Mod | Min | Max"
Atom: TypeAlias = "Factor | Product"
Terms: TypeAlias = tuple[tuple[int, Atom], ...]


# --- interning -----------------------------------------------------------------------------------

_symbols: Final[dict[str, Symbol]] = {}
_products: Final[dict[tuple[Factor, ...], Product]] = {}
_quotients: Final[dict[tuple[Dim, Dim], FloorDiv]] = {}
_remainders: Final[dict[tuple[Dim, Dim], Mod]] = {}
_minima: Final[dict[tuple[Dim, ...], Min]] = {}
_maxima: Final[dict[tuple[Dim, ...], Max]] = {}


def finish(node: AtomNode, key: Key, seed: object, names: frozenset[str]) -> None:
    """Give a new atom its sort key, its names and its hash: that of seed, equal in every run."""
    node.key = key
    set_hash(node, seed, names)


def set_hash(node: Node, seed: object, names: frozenset[str]) -> None:
    """Give a new node its names and its hash: that of seed, equal in every run."""
    node.symbols = names
    node._hash = hash(seed)  # pyright: ignore[reportPrivateUsage]


def names_in(parts: Iterable[Dim | Atom]) -> frozenset[str]:
    """The symbols inside the parts."""
    return frozenset[str]().union(*(part.symbols for part in parts if not isinstance(part, int)))


def sort_key(value: Dim) -> Key:
    """Where an expression stands in the order of all expressions."""
    return (0, value) if isinstance(value, int) else value.key


def symbol_atom(name: str) -> Symbol:
    """The atom of a name."""
    found = _symbols.get(name)
    if found is None:
        found = Symbol()
        found.name = name
        finish(found, (1, name), (1, crc32(name.encode())), frozenset((name,)))
        found = _symbols.setdefault(name, found)
    return found


def product_atom(factors: tuple[Factor, ...]) -> Product:
    """The atom of two or more sorted factors."""
    found = _products.get(factors)
    if found is None:
        found = Product()
        found.factors = factors
        key = (2, len(factors), *(factor.key for factor in factors))
        finish(found, key, (2, factors), names_in(factors))
        found = _products.setdefault(factors, found)
    return found


def quotient_atom(numerator: Dim, denominator: Dim) -> FloorDiv:
    """The atom numerator // denominator."""
    pair = (numerator, denominator)
    found = _quotients.get(pair)
    if found is None:
        found = FloorDiv()
        found.numerator, found.denominator = pair
        finish(found, (3, sort_key(numerator), sort_key(denominator)), (3, pair), names_in(pair))
        found = _quotients.setdefault(pair, found)
    return found


def remainder_atom(value: Dim, divisor: Dim) -> Mod:
    """The atom value % divisor."""
    pair = (value, divisor)
    found = _remainders.get(pair)
    if found is None:
        found = Mod()
        found.value, found.divisor = pair
        finish(found, (4, sort_key(value), sort_key(divisor)), (4, pair), names_in(pair))
        found = _remainders.setdefault(pair, found)
    return found


def minimum_atom(args: tuple[Dim, ...]) -> Min:
    """The atom of the smallest of two or more sorted expressions."""
    found = _minima.get(args)
    if found is None:
        found = Min()
        found.args = args
        finish(found, (5, len(args), *map(sort_key, args)), (5, args), names_in(args))
        found = _minima.setdefault(args, found)
    return found


def maximum_atom(args: tuple[Dim, ...]) -> Max:
    """The atom of the largest of two or more sorted expressions."""
    found = _maxima.get(args)
    if found is None:
        found = Max()
        found.args = args
        finish(found, (6, len(args), *map(sort_key, args)), (6, args), names_in(args))
        found = _maxima.setdefault(args, found)
    return found
