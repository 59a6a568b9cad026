"""Patterns over terms (an operation applied to terms), and matching. Not here: replacements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Protocol, TypeAlias, runtime_checkable


@runtime_checkable
class Term(Protocol):
    """An immutable value: an operation, its arguments and its type."""

    @property
    def op(self) -> Any:
        """The operation."""
        ...

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments, terms themselves."""
        ...

    @property
    def type(self) -> Any:
        """The type of the value."""
        ...


Test: TypeAlias = Callable[[Any], object]
Uses: TypeAlias = Callable[[Any], int]


@dataclass(frozen=True)
class Wild:
    """Any term, called `name`; a name that occurs twice must be the same term both times."""

    name: str
    test: Test | None = None


@dataclass(frozen=True)
class Of:
    """A term whose operation is one of `ops` (classes, abstract ones included).

    `args` None leaves the arguments open. `commutes` also tries the arguments in other orders.
    `once` asks that nothing else uses the term, so that its replacement makes it vanish.
    """

    ops: tuple[type, ...]
    args: tuple[Pattern, ...] | None = None
    name: str = ""
    test: Test | None = None
    commutes: bool = False
    once: bool = False


Pattern: TypeAlias = Wild | Of


def match(pattern: Pattern, term: Term, uses: Uses) -> Iterator[Mapping[str, Any]]:
    """Every way in which `term` is an instance of `pattern`: terms by name.

    `uses(term)` counts users; the root's own count does not matter.
    """
    return _match(pattern, term, {}, uses, True)


def _match(
    pattern: Pattern, term: Term, bound: Mapping[str, Any], uses: Uses, root: bool
) -> Iterator[Mapping[str, Any]]:
    if isinstance(pattern, Of):
        if not isinstance(term.op, pattern.ops):
            return
        if pattern.once and not root and uses(term) > 1:
            return
    if pattern.test is not None and not pattern.test(term):
        return
    if pattern.name:
        if bound.get(pattern.name, term) is not term:
            return
        bound = {**bound, pattern.name: term}
    if isinstance(pattern, Wild) or pattern.args is None:
        yield bound
        return
    if len(pattern.args) != len(term.args):
        return
    orders = permutations(term.args) if pattern.commutes else (term.args,)
    for order in orders:
        yield from _match_all(pattern.args, order, bound, uses)


def _match_all(
    patterns: tuple[Pattern, ...],
    terms: tuple[Any, ...],
    bound: Mapping[str, Any],
    uses: Uses,
) -> Iterator[Mapping[str, Any]]:
    if not patterns:
        yield bound
        return
    for found in _match(patterns[0], terms[0], bound, uses, False):
        yield from _match_all(patterns[1:], terms[1:], found, uses)
