"""Scalars inside kernels as infix formulas, with types only where reading could not infer them. Not here: statements.

A value that occurs more than once and is long is written once, as an abbreviation: `$0 = ...` before the statement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from unistack_aot.base.dtypes import DType, bool_, f32, i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, Symbol, terms, text
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import (
    Call,
    Cast,
    Index,
    IndexEntry,
    Lit,
    Load,
    Name,
    Scalar,
    children,
    postorder,
)

LONG = 28  # characters up to which a repeated value is written out again
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
RESERVED = frozenset(
    ["and", "or", "not", "true", "false", "inf", "nan", "where", "at", "fold", "of", "over", "role"]
)
INFIX: Mapping[str, tuple[str, int]] = {
    "or": ("or", 1),
    "and": ("and", 2),
    "eq": ("==", 4),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "add": ("+", 5),
    "sub": ("-", 5),
    "mul": ("*", 6),
    "div": ("/", 6),
}
NOT, COMPARE, UNARY, ATOM = 3, 4, 7, 9


def label(name: str) -> str:
    """A name as it is, or quoted where it is no plain word."""
    return name if WORD.fullmatch(name) and name not in RESERVED else json.dumps(name)


def passing(fn: str) -> bool:
    """Whether the operands of a function have the dtype of its result (`where` apart)."""
    rule = FUNCTIONS[fn].result
    return fn != "where" and rule([f32] * FUNCTIONS[fn].arity) is not bool_ and fn not in _LOGICAL


_LOGICAL = frozenset(["and", "or", "xor", "not"])


def default_dtype(value: int | float | bool) -> DType:
    """The dtype of a literal that nothing else types."""
    if isinstance(value, bool):
        return bool_
    return i64 if isinstance(value, int) else f32


@dataclass
class Types:
    """What reading knows at a place: dtypes of buffers and tiles, and of named values."""

    buffers: dict[str, DType] = field(default_factory=dict[str, DType])
    names: dict[str, DType] = field(default_factory=dict[str, DType])

    def inner(self) -> Types:
        """What is known inside a block; what the block adds is forgotten after it."""
        return Types(dict(self.buffers), dict(self.names))


class Formula:
    """The texts of one statement's scalars, and the abbreviations they use."""

    def __init__(self, types: Types, roots: tuple[Scalar, ...]) -> None:
        self.types = types
        self.lines: list[str] = []
        self._short: dict[Scalar, str] = {}
        self._texts: dict[tuple[Scalar, DType | None], tuple[str, int]] = {}
        self._weak: dict[Scalar, bool] = {}
        uses = _uses(roots)
        for node in postorder(*roots):  # operands first, so that deep formulas do not recurse
            self._weak[node] = self._is_weak(node)
            if self._weak[node]:
                continue
            body, _ = self._written(node, None)
            if uses[node] > 1 and len(body) > LONG and isinstance(node, Call | Cast | Load):
                self._short[node] = f"${len(self._short)}"
                self.lines.append(f"{self._short[node]} = {body}")

    def text(self, value: Scalar, expected: DType | None = None) -> str:
        """One of the roots, or a part of one, where reading expects `expected`."""
        return self._written(value, expected)[0]

    def _is_weak(self, value: Scalar) -> bool:
        """Whether a value takes its dtype from its surroundings: literals, and functions of literals only."""
        if isinstance(value, Lit):
            return True
        if not isinstance(value, Call) or not (passing(value.fn) or value.fn == "where"):
            return False
        return all(self._weak.get(a, False) for a in _typed(value))

    def _written(self, value: Scalar, expected: DType | None) -> tuple[str, int]:
        if value in self._short:
            return self._short[value], ATOM
        key = (value, expected if self._weak.get(value) else None)
        if key not in self._texts:
            self._texts[key] = self._compose(value, expected)
        return self._texts[key]

    def _compose(self, value: Scalar, expected: DType | None) -> tuple[str, int]:
        match value:
            case Lit():
                want = default_dtype(value.value) if expected is None else expected
                body = number(value.value)
                return (body if value.dtype is want else f"{body}:{value.dtype}"), ATOM
            case Call():
                return self._call(value, expected)
            case Cast():
                return f"{value.dtype}({self.text(value.value)})", ATOM
            case Index():
                return _index(value, self.types.names), ATOM
            case Load():
                entries = ", ".join(self.entry(e) for e in value.index)
                body = f"{label(value.buffer)}[{entries}]"
                known = self.types.buffers.get(value.buffer) is value.dtype
                return (body if known else f"{body}:{value.dtype}"), ATOM
            case Name():
                known = self.types.names.get(value.name) is value.dtype
                return label(value.name) + ("" if known else f":{value.dtype}"), ATOM
            case _:
                raise IRError(f"{type(value).__name__} has no text inside a kernel")

    def entry(self, entry: IndexEntry) -> str:
        """One entry of an index."""
        return f"at {self.text(entry, i64)}" if isinstance(entry, Scalar) else text(entry)

    def _call(self, value: Call, expected: DType | None) -> tuple[str, int]:
        wanted = self.expectations(value, expected)
        args = value.args
        if value.fn in INFIX:
            mark, binds = INFIX[value.fn]
            left = self._side(args[0], wanted[0], binds + (binds == COMPARE))
            return f"{left} {mark} {self._side(args[1], wanted[1], binds + 1)}", binds
        if value.fn == "not":
            return f"not {self._side(args[0], None, NOT)}", NOT
        if value.fn == "neg" and not isinstance(args[0], Lit):
            return f"-{self._side(args[0], wanted[0], UNARY)}", UNARY
        inner = ", ".join(self._side(a, w, 0) for a, w in zip(args, wanted, strict=True))
        return f"{value.fn}({inner})", ATOM

    def _side(self, value: Scalar, expected: DType | None, least: int) -> str:
        body, binds = self._written(value, expected)
        return body if binds >= least else f"({body})"

    def expectations(self, value: Call, expected: DType | None) -> tuple[DType | None, ...]:
        """The dtype that reading expects of each operand: that of a typed one beside it, or of the result."""
        group = _typed(value)
        strong = next((a.dtype for a in group if not self._weak.get(a, False)), None)
        outer = expected if passing(value.fn) or value.fn == "where" else None
        shared = outer if strong is None else strong
        first: tuple[DType | None, ...] = (None,) if value.fn == "where" else ()
        return (*first, *([shared] * len(group)))


def _typed(value: Call) -> tuple[Scalar, ...]:
    """The operands that share one dtype."""
    return value.args[1:] if value.fn == "where" else value.args


def _uses(roots: tuple[Scalar, ...]) -> dict[Scalar, int]:
    nodes = tuple(postorder(*roots))
    uses = dict.fromkeys(nodes, 0)
    for child in chain(roots, *(children(node) for node in nodes)):
        uses[child] += 1
    return uses


def _index(value: Index, names: Mapping[str, DType]) -> str:
    """An index expression used as a value: a variable by itself, arithmetic in brackets."""
    body = text(value.dim)
    const, parts = terms(value.dim)
    lone = const == 0 and len(parts) == 1 and parts[0][0] == 1 and isinstance(parts[0][1], Symbol)
    plain = WORD.fullmatch(body) is not None and body not in RESERVED | FUNCTIONS.keys()
    return body if lone and plain and body not in names else f"[{body}]"


def number(value: int | float | bool) -> str:
    """A literal; floats keep every bit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def dims(shape: tuple[Dim, ...]) -> str:
    """Extents or an index, in brackets."""
    return f"[{', '.join(map(text, shape))}]"
