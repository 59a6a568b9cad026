"""From text back to expressions. Not here: printing (expr.py, beside the canonical order)."""

from __future__ import annotations

import copyreg
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .expr import (
    Dim,
    Sym,
    add,
    floordiv,
    maximum,
    minimum,
    modulo,
    multiply,
    scale,
    symbol,
    text,
)

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)|(?P<quoted>'(?:[^'\\]|\\.)*')"
    r"|(?P<mark>//|[-+*%(),]))",
    re.DOTALL,
)


@lru_cache(1 << 16)
def parse(source: str) -> Dim:
    """The expression a text stands for; ValueError with the place where it can not be read."""
    reader = _Reader(source, _tokens(source))
    value = reader.sum()
    reader.expect("end", "")
    return value


def _tokens(source: str) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    at = 0
    stop = len(source.rstrip())
    while at < stop:
        match = _TOKEN.match(source, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"cannot read {source!r} at column {at}")
        found.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    found.append(("end", "", stop))
    return found


@dataclass(slots=True)
class _Reader:
    """A cursor over tokens; one method per level of precedence."""

    source: str
    tokens: list[tuple[str, str, int]]
    at: int = 0

    def take(self, *marks: str) -> str | None:
        kind, word, _ = self.tokens[self.at]
        if kind == "mark" and word in marks:
            self.at += 1
            return word
        return None

    def expect(self, kind: str, word: str) -> None:
        got_kind, got, column = self.tokens[self.at]
        if (got_kind, got) != (kind, word):
            raise ValueError(f"cannot read {self.source!r} at column {column}: {got or 'end'!r}")
        self.at += 1

    def sum(self) -> Dim:
        total = self.product()
        while mark := self.take("+", "-"):
            part = self.product()
            total = add(total, part if mark == "+" else scale(part, -1))
        return total

    def product(self) -> Dim:
        value = self.signed()
        while mark := self.take("*", "//", "%"):
            right = self.signed()
            match mark:
                case "*":
                    value = multiply(value, right)
                case "//":
                    value = floordiv(value, right)
                case _:
                    value = modulo(value, right)
        return value

    def signed(self) -> Dim:
        return scale(self.signed(), -1) if self.take("-") else self.primary()

    def primary(self) -> Dim:
        kind, word, column = self.tokens[self.at]
        self.at += 1
        match kind:
            case "number":
                return int(word)
            case "quoted":
                return symbol(re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL))
            case "name" if word in ("min", "max"):
                return self.extreme(word)
            case "name":
                return symbol(word)
            case "mark" if word == "(":
                inner = self.sum()
                self.expect("mark", ")")
                return inner
            case _:
                raise ValueError(f"cannot read {self.source!r} at column {column}")

    def extreme(self, word: str) -> Dim:
        self.expect("mark", "(")
        args = [self.sum()]
        while self.take(","):
            args.append(self.sum())
        self.expect("mark", ")")
        return minimum(*args) if word == "min" else maximum(*args)


def _pickled(value: Sym) -> tuple[Any, ...]:
    return parse, (text(value),)


copyreg.pickle(Sym, _pickled)
