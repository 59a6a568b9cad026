"""Vector steps: wide loads into registers, an unrolled loop over the elements, wide stores.

Not here: who takes which step (printer.py).
"""

from __future__ import annotations

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, substitute
from unistack_aot.codegen.ctree import Block, CNode, Directive, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import IndexEntry, Load, Name, Scalar, index_symbols
from unistack_aot.mcir.monoids import Monoid
from unistack_aot.mcir.nodes import Fold, Let, Stmt, Store
from unistack_aot.mcir.transform import substitute_vars
from unistack_aot.schedule.vectors import always_loaded, is_wide


class Wide:
    """One vector step: `width` elements of `var` in registers."""

    def __init__(self, var: str, width: int, writer: KernelWriter) -> None:
        self.var, self.width = var, width
        self.writer = writer
        self.dialect = writer.dialect
        self.aligned: dict[str, Dim] = {}
        self.names: dict[Scalar, str] = {}

    def around(self, body: tuple[Stmt, ...]) -> tuple[CNode, ...]:
        """A straight body of lets and stores."""
        found = [x for s in body if isinstance(s, Let | Store) for x in always_loaded(s.value)]
        loads = self.loads(tuple(dict.fromkeys(found)))
        held: list[CNode] = []
        after: list[CNode] = []
        inner: list[CNode] = []
        names = dict(self.names)
        for stmt in body:
            match stmt:
                case Store() if self._wide(stmt.buffer, stmt.index):
                    number = len(after)
                    lines, text = self.writer.printer.bind(stmt.value, names)
                    kind = self.dialect.type(stmt.value.dtype)
                    held.append(Line(f"ua::Vector<{kind}, {self.width}> out{number};"))
                    inner += [*lines, Line(f"out{number}[{identifier(self.var)}] = {text};")]
                    place = self._first(stmt.buffer, stmt.index)
                    after.append(Line(f"ua::store(&{place}, out{number});"))
                case _:
                    inner += self._plain(stmt, names)
        return (Block("", (*loads, *held, *self._loop(tuple(inner)), *after)),)

    def narrow(self, body: tuple[Stmt, ...]) -> tuple[CNode, ...]:
        """A straight body for one element, with the names known so far."""
        nodes: list[CNode] = []
        names = dict(self.names)
        for stmt in body:
            nodes += self._plain(stmt, names)
        return tuple(nodes)

    def substituted(self, body: tuple[Stmt, ...], env: dict[str, Dim]) -> tuple[Stmt, ...]:
        """The body with index variables replaced."""
        return substitute_vars(body, env)

    def _plain(self, stmt: Stmt, names: dict[Scalar, str]) -> tuple[CNode, ...]:
        """A let or a store of one element."""
        match stmt:
            case Store():
                lines, text = self.writer.printer.bind(stmt.value, names)
                place = self.writer.printer.element(stmt.buffer, stmt.index, names)
                if stmt.combine == "set":
                    return (*lines, Line(f"{place} = {text};"))
                return (*lines, Line(self.writer.target.combine(stmt, place, text)))
            case Let():
                lines, text = self.writer.printer.bind(stmt.value, names)
                kind = self.dialect.type(stmt.value.dtype)
                return (*lines, Line(f"const {kind} {identifier(stmt.name)} = {text};"))
            case _:
                raise IRError(f"{type(stmt).__name__} inside a vector loop")

    def folded(self, fold: Fold, monoid: Monoid) -> tuple[CNode, ...]:
        """The points of one vector merged into the fold's states."""
        found = [load for value in fold.values for load in always_loaded(value)]
        loads = self.loads(tuple(dict.fromkeys(found)))
        fields = monoid.fields(tuple(v.dtype for v in fold.values))
        states = tuple(Name(s, d) for s, d in zip(fold.states, fields, strict=True))
        lines, lifted = self._lifted(fold)
        merged = self.writer.assign(states, monoid.merge(states, monoid.lift(lifted)))
        return (*loads, *self._loop((*lines, *merged)))

    def _lifted(self, fold: Fold) -> tuple[list[CNode], tuple[Scalar, ...]]:
        """The fold's inputs as named values."""
        lines: list[CNode] = []
        values: list[Scalar] = []
        names = dict(self.names)
        for number, value in enumerate(fold.values):
            extra, text = self.writer.printer.bind(value, names)
            kind = self.dialect.type(value.dtype)
            lines += [*extra, Line(f"const {kind} point{number} = {text};")]
            values.append(Name(f"point{number}", value.dtype))
        return lines, tuple(values)

    def loads(self, loads: tuple[Load, ...]) -> tuple[CNode, ...]:
        """Wide loads of what is contiguous, single ones of what all elements share; how they are known from now on."""
        lines: list[CNode] = []
        for load in loads:
            name = f"in{len(lines)}"
            place = self._first(load.buffer, load.index)
            if self._wide(load.buffer, load.index):
                lines.append(Line(f"const auto {name} = ua::load<{self.width}>(&{place});"))
                self.names[load] = f"{name}[{identifier(self.var)}]"
            elif self._shared(load):
                kind = self.dialect.type(load.dtype)
                lines.append(Line(f"const {kind} {name} = {place};"))
                self.names[load] = name
        return tuple(lines)

    def _shared(self, load: Load) -> bool:
        """Whether a load is the same for all elements of the vector."""
        plain = all(not isinstance(entry, Scalar) for entry in load.index)
        return plain and self.var not in index_symbols(load)

    def _loop(self, inner: tuple[CNode, ...]) -> tuple[CNode, ...]:
        var = identifier(self.var)
        return (
            Directive(self.dialect.simd),
            Block(f"for (int {var} = 0; {var} < {self.width}; ++{var})", inner),
        )

    def _wide(self, buffer: str, index: tuple[IndexEntry, ...]) -> bool:
        param = next((p for p in self.writer.kernel.params if p.name == buffer), None)
        if param is None:
            return False
        held = tuple(e if isinstance(e, Scalar) else substitute(e, self.aligned) for e in index)
        return is_wide(param, held, self.var, self.width, self.writer.printer.ranges)

    def _first(self, buffer: str, index: tuple[IndexEntry, ...]) -> str:
        first: tuple[IndexEntry, ...] = tuple(
            e if isinstance(e, Scalar) else _at_zero(e, self.var) for e in index
        )
        return self.writer.printer.element(buffer, first, {})


def _at_zero(entry: Dim, var: str) -> Dim:
    return substitute(entry, {var: 0})
