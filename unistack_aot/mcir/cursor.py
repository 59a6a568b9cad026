"""Tokens of MCIR text, and a cursor over them with errors that show the line. Not here: what the tokens mean."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from unistack_aot.base import symbolic
from unistack_aot.base.dtypes import ALL, DType, parse_dtype
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import Dim
from unistack_aot.ir.tokens import Token, tokens_of

_TOKEN = re.compile(
    r"(?P<space>\s+|\#\s[^\n]*)"
    r"|(?P<hash>\#[0-9a-f]+)"
    r"|(?P<float>(?:\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?![A-Za-z_]))"
    r"|(?P<int>\d+(?![A-Za-z_]))"
    r'|(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<quoted>'(?:[^'\\]|\\.)*')"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<short>\$\d+)"
    r"|(?P<mark>\.\.\+|->|<-|//|\+=|\*=|==|<=|[-+*/%(),=:<{}\[\]])"
)
DTYPES = frozenset(d.name for d in ALL)
_OPERATORS = frozenset(["+", "-", "*", "//", "%"])


def bad(source: str, at: int, why: str) -> BadInput:
    """The error for a place in a text."""
    line = source.count("\n", 0, at) + 1
    lines = source.splitlines()
    shown = lines[line - 1].strip() if line <= len(lines) else "the end"
    return BadInput(f"MCIR text: {why}", at=f"line {line}: {shown}", hint="see docs/mcir.md")


class Cursor:
    """A place in a list of tokens."""

    def __init__(self, source: str) -> None:
        self.source, self.tokens, self.at = source, tuple(tokens_of(source, _TOKEN, bad)), 0

    def fail(self, why: str) -> NoReturn:
        """Stop with an error at the current token."""
        raise bad(self.source, self.tokens[self.at].at, why)

    @property
    def token(self) -> Token:
        """The current token."""
        return self.tokens[self.at]

    def sees(self, word: str) -> bool:
        """Whether the current token is this word or mark."""
        token = self.tokens[self.at]
        return token.word == word and token.kind in ("word", "mark")

    def take(self, word: str) -> bool:
        """Move past a word or mark if it comes next."""
        found = self.sees(word)
        self.at += found
        return found

    def expect(self, word: str) -> None:
        """Move past a word or mark that must come next."""
        if not self.take(word):
            self.fail(f"{word!r} expected, not {self.token.word!r}")

    def next(self, *kinds: str) -> Token:
        """The current token, which must be of one of these kinds."""
        token = self.token
        if token.kind not in kinds:
            self.fail(f"{' or '.join(kinds)} expected, not {token.word!r}")
        self.at += 1
        return token

    def name(self) -> str:
        """A plain or quoted name."""
        token = self.next("word", "string")
        return json.loads(token.word) if token.kind == "string" else token.word

    def string(self) -> str:
        """A quoted string's content."""
        return json.loads(self.next("string").word)

    def integer(self) -> int:
        """A number without sign."""
        return int(self.next("int").word)

    def dtype(self) -> DType:
        """The name of an element type."""
        token = self.next("word")
        if token.word not in DTYPES:
            self.at -= 1
            self.fail(f"{token.word!r} is no element type")
        return parse_dtype(token.word)

    def dim(self) -> Dim:
        """An integer expression over index variables and dimensions."""
        start = self.at
        self._term()
        while self.token.kind == "mark" and self.token.word in _OPERATORS:
            self.at += 1
            self._term()
        last = self.tokens[self.at - 1]
        piece = self.source[self.tokens[start].at : last.at + len(last.word)]
        try:
            return symbolic.parse(piece)
        except ValueError as fault:
            self.fail(str(fault))

    def _term(self) -> None:
        """Skip one operand of an integer expression; symbolic.parse reads it."""
        while self.take("-"):
            pass
        if self.token.kind == "word" and self.tokens[self.at + 1].word == "(":
            self.at += 1
        if not self.take("("):
            self.next("int", "word", "quoted")
            return
        depth = 1
        while depth:
            if self.token.kind == "end":
                self.fail("a bracket is not closed")
            depth += self.sees("(") - self.sees(")")
            self.at += 1

    def extents(self) -> tuple[Dim, ...]:
        """`[expression, ...]`."""
        self.expect("[")
        found: list[Dim] = []
        while not self.take("]"):
            found.append(self.dim())
            self.separator("]")
        return tuple(found)

    def separator(self, closing: str) -> None:
        """A comma, unless the list ends here."""
        if not self.sees(closing):
            self.expect(",")
