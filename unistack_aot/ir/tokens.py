"""Cutting the text form of an IR into tokens. Not here: which tokens an IR has, what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text, what kind it is, and where it starts."""

    kind: str
    word: str
    at: int


def tokens_of(
    source: str, pattern: re.Pattern[str], bad: Callable[[str, int, str], Exception]
) -> Iterator[Token]:
    """All tokens, then one of kind "end"; groups of `pattern` name the kinds, "space" is skipped.

    Raises `bad(source, place, why)` for a character that starts no token.
    """
    at = 0
    while at < len(source):
        found = pattern.match(source, at)
        if found is None or found.lastgroup is None:
            raise bad(source, at, f"{source[at]!r} means nothing here")
        if found.lastgroup != "space":
            yield Token(found.lastgroup, found[0], at)
        at = found.end()
    yield Token("end", "the end", at)
