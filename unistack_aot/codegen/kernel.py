"""Prints the statements of a legalised kernel as C nodes. Not here: how a target spells parallel loops and tiles."""

from __future__ import annotations

from typing import Protocol, assert_never

from unistack_aot.base.dtypes import DType
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, Ranges, bounds, symbols
from unistack_aot.codegen.ctree import Block, CNode, Directive, Line
from unistack_aot.codegen.dialect import Dialect
from unistack_aot.codegen.expr import Addresses, Printer, identifier
from unistack_aot.ir.scalar import Call, Name, Scalar, index_symbols
from unistack_aot.mcir.monoids import MONOIDS, Monoid
from unistack_aot.mcir.nodes import (
    Attend,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Let,
    Loop,
    Role,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    When,
)
from unistack_aot.mcir.transform import bound_vars, has_conditional_loads, scalars, walk

FEWEST_LANES = 4
"""Shorter loops fill no vector register whose loads could be masked."""
COMBINE = {"add": "add", "mul": "mul", "min": "min", "max": "max"}


class TargetPrinter(Protocol):
    """What a target prints itself: parallel loops, shared folds and tile statements."""

    dialect: Dialect
    vectors: bool
    """Whether it prints VECTOR loops itself; otherwise the compiler is asked to vectorise them."""

    def loop(self, loop: Loop, writer: KernelWriter) -> tuple[CNode, ...]:
        """A loop whose role is GRID, GROUP or LANE, or a VECTOR loop around folds."""
        ...

    def fold(self, fold: Fold, writer: KernelWriter) -> tuple[CNode, ...]:
        """A fold whose role is not SEQ."""
        ...

    def tile(
        self, stmt: Tile | Fill | Contract | Drain | Attend | Stream | Sync, writer: KernelWriter
    ) -> tuple[CNode, ...]:
        """A tile statement."""
        ...

    def combine(self, store: Store, place: str, value: str) -> str:
        """A store that combines with the old value, where other workers may do the same."""
        ...


class KernelWriter:
    """Prints one kernel; keeps the ranges of the loop variables in scope."""

    def __init__(self, kernel: Kernel, target: TargetPrinter, dims: Ranges) -> None:
        self.kernel = kernel
        self.target = target
        self.dialect = target.dialect
        shapes = {p.name: p.shape for p in kernel.params}
        layouts = {p.name: p.layout for p in kernel.params}
        self.printer = Printer(self.dialect, Addresses(shapes, layouts), dims)
        self.printer.sizes = frozenset(dimensions(kernel))
        self.start = self.dialect.start if has_conditional_loads(kernel.body) else "0"

    def body(self, stmts: tuple[Stmt, ...]) -> tuple[CNode, ...]:
        """A list of statements."""
        return tuple(node for stmt in stmts for node in self.statement(stmt))

    def statement(self, stmt: Stmt) -> tuple[CNode, ...]:
        """One statement."""
        match stmt:
            case Let():
                lines, text = self.value(stmt.value)
                kind = self.dialect.type(stmt.value.dtype)
                return (*lines, Line(f"const {kind} {identifier(stmt.name)} = {text};"))
            case Store():
                return self.store(stmt)
            case Loop():
                return self.loop(stmt)
            case Fold():
                return self.fold(stmt) if stmt.role is Role.SEQ else self.target.fold(stmt, self)
            case When():
                return self.when(stmt)
            case Tile() | Fill() | Contract() | Drain() | Attend() | Stream() | Sync():
                return self.target.tile(stmt, self)
            case _:
                assert_never(stmt)

    def value(self, value: Scalar) -> tuple[tuple[CNode, ...], str]:
        """Statements naming shared parts, and the expression."""
        return self.printer.bind(value, {})

    def store(self, stmt: Store) -> tuple[CNode, ...]:
        """An assignment, or a read-modify-write for a combining store."""
        lines, text = self.value(stmt.value)
        place = self.printer.element(stmt.buffer, stmt.index, {})
        if stmt.combine == "set":
            return (*lines, Line(f"{place} = {text};"))
        return (*lines, Line(self.target.combine(stmt, place, text)))

    def when(self, stmt: When) -> tuple[CNode, ...]:
        """An if statement."""
        lines, text = self.value(stmt.condition)
        yes = Block(f"if ({text})", self.body(stmt.body))
        if not stmt.otherwise:
            return (*lines, yes)
        return (*lines, yes, Block("else", self.body(stmt.otherwise)))

    def loop(self, loop: Loop) -> tuple[CNode, ...]:
        """A sequential, vector or unrolled loop; parallel roles go to the target."""
        match loop.role:
            case Role.SEQ:
                return (self.counted(loop),)
            case Role.VECTOR if not self.target.vectors and not any(
                isinstance(s, Fold) for s in loop.body
            ):
                return (Directive(self.dialect.simd), self.counted(loop))
            case Role.UNROLL:
                extent = loop.extent if isinstance(loop.extent, int) else 4
                return (Directive(self.dialect.unroll(extent)), self.counted(loop))
            case Role.MAP:
                raise IRError(f"loop {loop.var} still has the abstract role 'map'")
            case _:
                return self.target.loop(loop, self)

    def counted(self, loop: Loop) -> Block:
        """`for (var = 0; var < extent; var += step)`."""
        var, extent = identifier(loop.var), self.printer.dim(loop.extent)
        with self.scope(loop.var, loop.extent):
            body = self.body(loop.body)
        return Block(self.header(var, extent, loop.step), body)

    def header(self, var: str, extent: str, step: int = 1) -> str:
        """The head of a counted loop."""
        advance = f"++{var}" if step == 1 else f"{var} += {step}"
        short = extent.isdecimal() and int(extent) < FEWEST_LANES
        start = "0" if short else self.start
        return f"for ({self.dialect.index_type} {var} = {start}; {var} < {extent}; {advance})"

    def scope(self, var: str, extent: Dim) -> Scope:
        """Inside, `var` is known to lie in [0, extent)."""
        return Scope(self.printer, var, extent)

    def fold(self, fold: Fold) -> tuple[CNode, ...]:
        """A sequential fold: declared states, nested loops, one merge per point."""
        monoid, kinds = self.monoid(fold)
        declare = self.declare_states(fold, monoid, kinds)
        return (*declare, *self.fold_loops(fold, 0, monoid, fold.states))

    def fold_loops(
        self, fold: Fold, depth: int, monoid: Monoid, states: tuple[str, ...]
    ) -> tuple[CNode, ...]:
        """Loops over the axes from `depth` on, around the merge of one point into `states`."""
        if depth == len(fold.axes):
            return (*self.body(fold.body), *self.merge_point(fold, monoid, states))
        axis = fold.axes[depth]
        with self.scope(axis.var, axis.extent):
            inner = self.fold_loops(fold, depth + 1, monoid, states)
        head = self.header(identifier(axis.var), self.printer.dim(axis.extent))
        return (Block(head, inner),)

    def monoid(self, fold: Fold) -> tuple[Monoid, tuple[DType, ...]]:
        """The fold's monoid and the dtypes of its inputs."""
        return MONOIDS[fold.monoid], tuple(v.dtype for v in fold.values)

    def declare_states(
        self, fold: Fold, monoid: Monoid, kinds: tuple[DType, ...]
    ) -> tuple[CNode, ...]:
        """`T state = identity;` for each field."""
        lines: list[CNode] = []
        for state, start in zip(fold.states, monoid.identity(kinds), strict=True):
            text = self.printer.value(start, {})
            lines.append(Line(f"{self.dialect.type(start.dtype)} {identifier(state)} = {text};"))
        return tuple(lines)

    def merge_point(self, fold: Fold, monoid: Monoid, states: tuple[str, ...]) -> tuple[CNode, ...]:
        """states = merge(states, lift(values))."""
        fields = monoid.fields(tuple(v.dtype for v in fold.values))
        held = tuple(Name(s, d) for s, d in zip(states, fields, strict=True))
        return self.assign(held, monoid.merge(held, monoid.lift(fold.values)))

    def assign(self, held: tuple[Name, ...], fresh: tuple[Scalar, ...]) -> tuple[CNode, ...]:
        """Simultaneous assignment of several names."""
        lines: list[CNode] = []
        names: dict[Scalar, str] = {}
        texts: list[str] = []
        for value in fresh:
            extra, text = self.printer.bind(value, names)
            lines += extra
            texts.append(text)
        if len(held) == 1:
            lines.append(Line(_update(held[0], fresh[0], texts[0])))
            return tuple(lines)
        for name, text in zip(held, texts, strict=True):
            kind = self.dialect.type(name.dtype)
            lines.append(Line(f"const {kind} next_{identifier(name.name)} = {text};"))

        lines += [Line(f"{identifier(n.name)} = next_{identifier(n.name)};") for n in held]
        return (Block("", tuple(lines)),)


def _update(held: Name, fresh: Scalar, text: str) -> str:
    name = identifier(held.name)
    if isinstance(fresh, Call) and fresh.fn in ("add", "mul") and fresh.args[0] is held:
        operator = "+" if fresh.fn == "add" else "*"
        prefix = f"({name} {operator} "
        if text.startswith(prefix) and text.endswith(")"):
            return f"{name} {operator}= {text[len(prefix) : -1]};"
    return f"{name} = {text};"


class Scope:
    """Context in which a variable has a range."""

    def __init__(self, printer: Printer, var: str, extent: Dim) -> None:
        self.printer, self.var = printer, var
        high = extent if isinstance(extent, int) else bounds(extent, printer.ranges)[1]
        self.range = (0, None if high is None else high - 1)

    def __enter__(self) -> None:
        self.printer.ranges[self.var] = self.range

    def __exit__(self, *problem: object) -> None:
        del self.printer.ranges[self.var]


def dimensions(kernel: Kernel) -> tuple[str, ...]:
    """Dimension symbols a kernel needs as arguments, sorted by name: all index symbols that it does not bind."""
    found: set[str] = set()
    for param in kernel.params:
        for extent in param.shape:
            found |= symbols(extent)
    for stmt in walk(kernel.body):
        for value in scalars(stmt):
            found |= index_symbols(value)
        match stmt:
            case Loop() | Stream():
                found |= symbols(stmt.extent)
            case Fold():
                found |= {name for a in stmt.axes for name in symbols(a.extent)}
            case Store():
                found |= {n for e in stmt.index if not isinstance(e, Scalar) for n in symbols(e)}
            case Attend():
                views = (stmt.q, stmt.k, stmt.v)
                found |= {n for v in views for e in v.index for n in symbols(e)}
                extents = (stmt.keys.extent, stmt.depth.extent, stmt.values.extent)
                found |= {n for e in extents for n in symbols(e)}
            case Contract():
                views = (stmt.a, stmt.b)
                found |= {n for v in views for e in v.index for n in symbols(e)}
                found |= {n for axis in stmt.depth for n in symbols(axis.extent)}
            case Fill():
                found |= {n for e in stmt.source.index for n in symbols(e)}
                spans = (stmt.rows, stmt.cols)
                found |= {n for s in spans for e in (s.first, s.extent) for n in symbols(e)}
            case _:
                pass
    return tuple(sorted(found - set(bound_vars(kernel.body))))
