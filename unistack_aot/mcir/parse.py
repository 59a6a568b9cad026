"""Kernels and statements from text, as text.py prints them. Not here: programs (program_parse.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from unistack_aot.base.dtypes import DType, parse_dtype
from unistack_aot.base.symbolic import Dim
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.formula_parse import FormulaReader
from unistack_aot.mcir.formula_text import Types
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.monoids import MONOIDS
from unistack_aot.mcir.nodes import (
    Access,
    Attend,
    Axis,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Let,
    Loop,
    Param,
    Role,
    Space,
    Span,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    View,
    When,
)
from unistack_aot.mcir.text import COMBINE, state_dtypes

_SPACES = {space.value: space for space in Space}
_ROLES = {role.value: role for role in Role}
_COMBINE = {mark: combine for combine, mark in COMBINE.items()}
T = TypeVar("T")


def parse_kernel(source: str) -> Kernel:
    """The kernel that a text stands for; BadInput shows the line that cannot be read."""
    reader = StatementReader(source)
    _, kernel = reader.kernel()
    reader.finish()
    return kernel


def parse_body(source: str, types: Types | None = None) -> tuple[Stmt, ...]:
    """Statements without a kernel around them; `types` tells what buffers and names hold."""
    reader = StatementReader(source)
    reader.types = Types() if types is None else types
    body: list[Stmt] = []
    while reader.token.kind != "end":
        body += reader.statement()
    return tuple(body)


@dataclass(frozen=True, slots=True)
class _Head:
    """One loop of a `for` line."""

    var: str
    extent: Dim
    step: int
    role: Role


class StatementReader(FormulaReader):
    """A cursor that reads kernels; one method per statement."""

    def finish(self) -> None:
        """Nothing may follow."""
        if self.token.kind != "end":
            self.fail(f"{self.token.word!r} follows the end")

    def kernel(self) -> tuple[str, Kernel]:
        """`kernel name(inputs) -> results facts { body }`."""
        self.expect("kernel")
        name = self.name()
        params: list[Param] = []
        self.expect("(")
        while not self.take(")"):
            params.append(self.param(Access.IN))
            self.separator(")")
        if self.take("->"):
            while self.token.kind in ("word", "string") and not self._fact():
                params.append(self.param(Access.OUT))
                if not self.take(","):
                    break
        group = 0
        if self.take("group"):
            self.expect("=")
            group = self.integer()
        reinterprets = self.take("reinterprets")
        self.types = Types({p.name: p.dtype for p in params}, {})
        body = self.block(self.types)
        return name, Kernel(tuple(params), body, reinterprets, group)

    def _fact(self) -> bool:
        following = self.tokens[self.at + 1].word
        if self.sees("group"):
            return following == "="
        return self.sees("reinterprets") and following == "{"

    def param(self, access: Access) -> Param:
        """`[out|inout] name: dtype[shape] far layout`."""
        spoken = self.token.word in ("in", "out", "inout") and self.tokens[self.at + 1].word != ":"
        if spoken:
            access = Access(self.next("word").word)
        name = self.name()
        self.expect(":")
        dtype, shape = self.dtype(), self.extents()
        self.take("far")
        return Param(name, dtype, shape, access, self.layout())

    def layout(self) -> Layout:
        """`block(axis, size) halo(before:after, ...)`, each optional."""
        block: tuple[int, int] | None = None
        halo: list[tuple[int, int]] = []
        if self.take("block"):
            self.expect("(")
            axis = self.integer()
            self.expect(",")
            block = axis, self.integer()
            self.expect(")")
        if self.take("halo"):
            self.expect("(")
            while not self.take(")"):
                before = self.integer()
                halo.append((before, self.integer() if self.take(":") else before))
                self.separator(")")
        return Layout(block, tuple(halo))

    def block(self, types: Types) -> tuple[Stmt, ...]:
        """`{ statements }`, what they bind known inside only."""
        self.expect("{")
        outer, self.types = self.types, types
        body: list[Stmt] = []
        while not self.take("}"):
            body += self.statement()
        self.types = outer
        return tuple(body)

    def statement(self) -> tuple[Stmt, ...]:
        """One statement; an abbreviation gives none."""
        if self.token.kind == "short":
            name = self.next("short").word
            self.expect("=")
            self.short[name] = self.scalar()
            return ()
        following = self.tokens[self.at + 1]
        spoken = following.kind in ("word", "string", "int", "short") or following.word in (
            "(",
            "-",
        )
        match self.token.word if spoken else "":
            case "for":
                return (self.loop(),)
            case "stream":
                return (self.stream(),)
            case "fill":
                return (self.fill(),)
            case "drain":
                return (self.drain(),)
            case "attend":
                return (self.attend(),)
            case "when":
                return (self.when(),)
            case _:
                return (self.plain(),)

    def plain(self) -> Stmt:
        """A statement that begins with a name."""
        if self.sees("sync") and self.tokens[self.at + 1].word not in ("=", ":", "[", ","):
            self.at += 1
            return Sync()
        if self.sees("when"):
            return self.when()
        name = self.name()
        if self.take(":"):
            return self.tile(name)
        if self.sees("["):
            return self.store(name) if not self._spans() else self.contract(name)
        states = [name]
        while self.take(","):
            states.append(self.name())
        self.expect("=")
        if self.sees("fold") and self.tokens[self.at + 1].kind == "word":
            return self.fold(tuple(states))
        value = self.scalar()
        self.types.names[name] = value.dtype
        return Let(name, value)

    def _spans(self) -> bool:
        """Whether the bracket that follows holds spans (`var in first ..+ extent`)."""
        return self.tokens[self.at + 2].word == "in" and self.tokens[self.at + 2].kind == "word"

    def tile(self, name: str) -> Tile:
        """`name: dtype[shape] space = fill`."""
        dtype, shape = self.dtype(), self.extents()
        space = self.one_of(_SPACES, "memory space")
        fill: float | None = None
        if self.take("="):
            sign = -1.0 if self.take("-") else 1.0
            fill = sign * float(self.next("float", "int", "word").word)
        self.types.buffers[name] = dtype
        return Tile(name, dtype, shape, space, fill)

    def one_of(self, table: dict[str, T], what: str) -> T:
        """A word that stands for a value."""
        word = self.next("word").word
        if word not in table:
            self.at -= 1
            self.fail(f"{word!r} is no {what}: one of {', '.join(table)}")
        return table[word]

    def store(self, buffer: str) -> Store:
        """`buffer[index] = value`, or another way to combine."""
        self.expect("[")
        index: list[int | Dim | Scalar] = []
        while not self.take("]"):
            index.append(self.entry())
            self.separator("]")
        mark = self.token.word
        self.at += 1
        if mark in ("min", "max"):
            self.expect("=")
            mark = f"{mark}="
        if mark not in _COMBINE:
            self.at -= 1
            self.fail(f"a store is one of {' '.join(_COMBINE)}")
        value = self.scalar(self.types.buffers.get(buffer))
        return Store(buffer, tuple(index), value, _COMBINE[mark])

    def fold(self, states: tuple[str, ...]) -> Fold:
        """`states = fold monoid over axes of values`, or a block that ends in `of values`."""
        self.expect("fold")
        monoid = self.next("word").word
        if monoid not in MONOIDS:
            self.fail(f"there is no monoid {monoid}")
        self.expect("over")
        axes = self.axes()
        role = self.role(Role.SEQ)
        outer, self.types = self.types, self.types.inner()
        body: list[Stmt] = []
        block = self.take("{")
        while block and not (self.sees("of") and self.tokens[self.at + 1].word not in ("=", ":")):
            body += self.statement()
        self.expect("of")
        values = [self.scalar()]
        while self.take(","):
            values.append(self.scalar())
        if block:
            self.expect("}")
        self.types = outer
        fold = Fold(states, monoid, axes, tuple(values), tuple(body), role)
        self.types.names.update(zip(states, state_dtypes(fold), strict=False))
        return fold

    def axes(self) -> tuple[Axis, ...]:
        """`var in extent, ...`."""
        found = [self.axis()]
        while self.take(","):
            found.append(self.axis())
        return tuple(found)

    def axis(self) -> Axis:
        """`var in extent`."""
        var = self.name()
        self.expect("in")
        return Axis(var, self.dim())

    def role(self, usual: Role) -> Role:
        """`role=name`, if it is there."""
        if not self.take("role"):
            return usual
        self.expect("=")
        return self.one_of(_ROLES, "role")

    def loop(self) -> Loop:
        """`for var in extent step n role=name, ... { body }`."""
        self.expect("for")
        heads = [self.head()]
        while self.take(","):
            heads.append(self.head())
        body = self.block(self.types.inner())
        for head in reversed(heads[1:]):
            body = (Loop(head.var, head.extent, body, head.role, head.step),)
        first = heads[0]
        return Loop(first.var, first.extent, body, first.role, first.step)

    def head(self) -> _Head:
        """One loop of a `for` line."""
        axis = self.axis()
        step = self.integer() if self.take("step") else 1
        return _Head(axis.var, axis.extent, step, self.role(Role.MAP))

    def stream(self) -> Stream:
        """`stream var in extent step n depth=n { body }`."""
        self.expect("stream")
        axis = self.axis()
        self.expect("step")
        step = self.integer()
        self.expect("depth")
        self.expect("=")
        depth = self.integer()
        return Stream(axis.var, axis.extent, step, depth, self.block(self.types.inner()))

    def spans(self) -> tuple[Span, Span]:
        """`[rows, columns]` of a tile."""
        self.expect("[")
        rows = self.span()
        self.expect(",")
        cols = self.span()
        self.expect("]")
        return rows, cols

    def span(self) -> Span:
        """`var in first ..+ extent`."""
        var = self.name()
        self.expect("in")
        first = self.dim()
        self.expect("..+")
        return Span(var, first, self.dim())

    def view(self) -> View:
        """`buffer[index] where condition`, rounded to a type: `type(buffer[index]) where condition`."""
        name = self.name()
        rounded = parse_dtype(name) if self.take("(") else None
        buffer, index = (name if rounded is None else self.name()), self.extents()
        if rounded is not None:
            self.expect(")")
        return View(buffer, index, self.scalar() if self.take("where") else None, rounded)

    def fill(self) -> Fill:
        """`fill tile[spans] <- view`."""
        self.expect("fill")
        tile = self.name()
        rows, cols = self.spans()
        self.expect("<-")
        return Fill(tile, rows, cols, self.view())

    def product(self) -> tuple[View, View]:
        """`contract(view, view)`."""
        self.expect("contract")
        self.expect("(")
        first = self.view()
        self.expect(",")
        second = self.view()
        self.expect(")")
        return first, second

    def contract(self, acc: str) -> Contract:
        """`acc[spans] += contract(a, b) over axes via instruction blocks(n, n, n)`."""
        rows, cols = self.spans()
        self.expect("+=")
        a, b = self.product()
        depth = self.axes() if self.take("over") else ()
        self.expect("via")
        via = self.name()
        blocks = self.numbers(3) if self.take("blocks") else (0, 0, 0)
        return Contract(acc, a, b, rows, cols, depth, via, (blocks[0], blocks[1], blocks[2]))

    def numbers(self, count: int) -> tuple[int, ...]:
        """`(n, ...)` with `count` numbers."""
        self.expect("(")
        found: list[int] = []
        while not self.take(")"):
            found.append(self.integer())
            self.separator(")")
        if len(found) != count:
            self.fail(f"{count} numbers expected, not {len(found)}")
        return tuple(found)

    def drain(self) -> Drain:
        """`drain acc[spans] as value by run { body }`."""
        self.expect("drain")
        acc = self.name()
        rows, cols = self.spans()
        self.expect("as")
        value, types = self.bound(self.types.buffers.get(acc))
        run = self.run()
        return Drain(acc, rows, cols, value, self.block(types), run)

    def run(self) -> int:
        """`by n`: neighbours that a worker takes at once; nothing for 1."""
        return self.integer() if self.take("by") else 1

    def bound(self, usual: DType | None) -> tuple[str, Types]:
        """`name` or `name: dtype`, and what is known where it is bound."""
        name, types = self.name(), self.types.inner()
        dtype = self.dtype() if self.take(":") else usual
        if dtype is not None:
            types.names[name] = dtype
        return name, types

    def attend(self) -> Attend:
        """`attend rows over keys via instruction { dot = ... score ... out = mix(v) for values { body } }`."""
        self.expect("attend")
        rows = self.span()
        self.expect("over")
        keys = self.axis()
        self.expect("via")
        via = self.name()
        blocks = self.numbers(2) if self.take("blocks") else (0, 0)
        self.expect("{")
        outer = self.types
        dot, self.types = self.bound(None)
        self.expect("=")
        q, k = self.product()
        self.expect("over")
        depth = self.axis()
        while self.token.kind == "short":
            self.statement()
        self.expect("score")
        score = self.scalar()
        self.types = outer
        out, types = self.bound(None)
        self.expect("=")
        self.expect("mix")
        self.expect("(")
        v = self.view()
        self.expect(")")
        self.expect("for")
        values = self.axis()
        run = self.run()
        body = self.block(types)
        self.expect("}")
        sizes = (blocks[0], blocks[1])
        return Attend(q, k, v, rows, keys, depth, values, dot, score, out, body, via, sizes, run)

    def when(self) -> When:
        """`when condition { body } else { otherwise }`."""
        self.expect("when")
        condition = self.scalar()
        body = self.block(self.types.inner())
        otherwise = self.block(self.types.inner()) if self.take("else") else ()
        return When(condition, body, otherwise)
