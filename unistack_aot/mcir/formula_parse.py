"""Scalars from the infix formulas that formula_text.py prints. Not here: statements (parse.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from unistack_aot.base.dtypes import DType, i64, parse_dtype
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import symbol
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import (
    Cast,
    Index,
    IndexEntry,
    Load,
    Name,
    Number,
    Scalar,
    call,
    literal,
)
from unistack_aot.mcir.cursor import DTYPES, Cursor
from unistack_aot.mcir.formula_text import (
    INFIX,
    NOT,
    UNARY,
    Types,
    default_dtype,
    passing,
)

Weak: TypeAlias = Callable[[DType | None], Scalar]
"""A value that takes its dtype from its surroundings."""
Found: TypeAlias = Scalar | Weak

_MARKS = {mark: (fn, binds) for fn, (mark, binds) in INFIX.items()}
_WORDS: dict[str, Number] = {"true": True, "false": False, "inf": math.inf, "nan": math.nan}


class FormulaReader(Cursor):
    """A cursor that reads scalars; `types` says what names and buffers hold."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.types = Types()
        self.short: dict[str, Scalar] = {}

    def scalar(self, expected: DType | None = None) -> Scalar:
        """A formula where a value of dtype `expected` (None: any) is wanted."""
        return _settled(self.formula(0), expected)

    def formula(self, least: int) -> Found:
        """Operands joined by marks that bind at least as tightly as `least`."""
        left = self.operand()
        while self.token.word in _MARKS and self.token.kind in ("mark", "word"):
            fn, binds = _MARKS[self.token.word]
            if binds < least:
                break
            self.at += 1
            left = self.applied(fn, (left, self.formula(binds + 1)))
        return left

    def operand(self) -> Found:
        """A value with its sign or negation."""
        if self.take("not"):
            return self.applied("not", (self.formula(NOT),))
        if self.sees("-"):
            self.at += 1
            token = self.token
            if token.kind in ("int", "float") or token.word in ("inf", "nan"):
                return self.value(-1)
            return self.applied("neg", (self.formula(UNARY),))
        return self.value(1)

    def value(self, sign: int) -> Found:
        """A literal, name, load, call or bracket, with the dtype that may follow it."""
        found = self.bare(sign)
        if not self.take(":"):
            return found
        dtype = self.dtype()
        if not isinstance(found, Scalar):
            return found(dtype)
        match found:
            case Load():
                return Load(found.buffer, found.index, dtype)
            case Name():
                return Name(found.name, dtype)
            case Index():  # a word that names nothing here is taken for a dimension
                return Name(str(found.dim), dtype)
            case _:
                if found.dtype is not dtype:
                    self.fail(f"the value is {found.dtype}, not {dtype}")
                return found

    def bare(self, sign: int) -> Found:
        """A value without its dtype."""
        token = self.token
        if token.kind in ("int", "float") or (token.word in _WORDS and token.kind == "word"):
            self.at += 1
            value = _number(token.word)
            return _literal(-value if sign < 0 else value)
        if token.kind == "short":
            self.at += 1
            if token.word not in self.short:
                self.fail(f"{token.word} has no value yet")
            return self.short[token.word]
        if self.take("("):
            inner = self.formula(0)
            self.expect(")")
            return inner
        if self.take("["):
            dim = self.dim()
            self.expect("]")
            return Index(dim, i64)
        return self.named()

    def named(self) -> Found:
        """A load, a call, a conversion, a named value or an index variable."""
        quoted = self.token.kind == "string"
        name = self.name()
        if self.take("["):
            return self.load(name)
        if not quoted and self.sees("("):
            return self.called(name)
        known = self.types.names.get(name)
        if known is not None:
            return Name(name, known)
        # quoted or followed by a dtype: a name that no statement binds
        return Name(name, i64) if quoted else Index(symbol(name), i64)

    def load(self, buffer: str) -> Scalar:
        """The rest of `buffer[entry, ...]`; a dtype may follow where the buffer is not known."""
        index: list[IndexEntry] = []
        while not self.take("]"):
            index.append(self.entry())
            self.separator("]")
        dtype = self.types.buffers.get(buffer)
        if dtype is None:
            if not self.sees(":"):
                self.fail(f"there is no buffer {buffer}")
            dtype = i64
        return Load(buffer, tuple(index), dtype)

    def entry(self) -> IndexEntry:
        """An index expression, or `at` and a value."""
        return self.scalar(i64) if self.take("at") else self.dim()

    def called(self, name: str) -> Found:
        """The rest of `function(...)` or `dtype(...)`."""
        self.expect("(")
        args: list[Found] = []
        while not self.take(")"):
            args.append(self.formula(0))
            self.separator(")")
        if name in DTYPES:
            if len(args) != 1:
                self.fail(f"a conversion takes one value, not {len(args)}")
            return Cast(_settled(args[0], None), parse_dtype(name))
        if name not in FUNCTIONS:
            self.fail(f"there is no function {name}")
        return self.applied(name, tuple(args))

    def applied(self, fn: str, args: tuple[Found, ...]) -> Found:
        """A function of operands, some of which may still wait for their dtype."""
        typed = args[1:] if fn == "where" else args
        strong = next((a.dtype for a in typed if isinstance(a, Scalar)), None)
        if strong is None and (passing(fn) or fn == "where"):
            return lambda expected: self.settled_call(fn, args, expected)
        return self.settled_call(fn, args, strong)

    def settled_call(self, fn: str, args: tuple[Found, ...], shared: DType | None) -> Scalar:
        """The call with operands of dtype `shared`; fails where the function is not defined for them."""
        first = (_settled(args[0], None),) if fn == "where" else ()
        rest = args[1:] if fn == "where" else args
        try:
            return call(fn, *first, *(_settled(a, shared) for a in rest))
        except IRError as fault:
            self.fail(fault.what)


def _settled(found: Found, expected: DType | None) -> Scalar:
    return found if isinstance(found, Scalar) else found(expected)


def _literal(value: Number) -> Weak:
    return lambda expected: literal(value, default_dtype(value) if expected is None else expected)


def _number(word: str) -> Number:
    if word in _WORDS:
        return _WORDS[word]
    return int(word) if word.isdigit() else float(word)
