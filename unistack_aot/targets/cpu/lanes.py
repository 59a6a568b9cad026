"""Prints a vector loop around folds: every iteration has its own lane of state, each statement is a loop over lanes."""

from __future__ import annotations

from math import prod

from unistack_aot.base.dtypes import DType, f32
from unistack_aot.base.symbolic import bounds
from unistack_aot.codegen.ctree import Block, CNode, Directive, Line
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import Name, Scalar, postorder
from unistack_aot.mcir.nodes import Axis, Fold, Let, Loop, Stmt
from unistack_aot.mcir.transform import scalars
from unistack_aot.targets.cpu.lane_sums import weighted_rows

MOST_TAPS = (
    64  # points of a window that are written out, so that the lanes' states stay in registers
)
LONGEST = 16  # points along one of its axes: 48 units of a recurrence took the compiler minutes


def lane_loop(loop: Loop, writer: KernelWriter) -> tuple[CNode, ...]:
    """The loop's statements one after the other, values that later ones need kept in arrays of lanes."""
    lanes = Lanes(loop, writer)
    nodes: list[CNode] = []
    with writer.scope(loop.var, loop.extent):
        for stmt in loop.body:
            nodes += lanes.fold(stmt) if isinstance(stmt, Fold) else lanes.plain(stmt)
    return (Block("", (*lanes.count(), *nodes)),)


class Lanes:
    """The arrays of lanes of one loop, by the name of the value they hold."""

    def __init__(self, loop: Loop, writer: KernelWriter) -> None:
        self.loop, self.writer = loop, writer
        top = bounds(loop.extent, writer.printer.ranges)[1]
        self.size = top if top is not None else 0
        self.fixed = isinstance(loop.extent, int)
        self.held: dict[str, DType] = {}

    def count(self) -> tuple[CNode, ...]:
        """The number of lanes in use, if it is not a constant."""
        if self.fixed:
            return ()
        return (Line(f"const int64_t lanes = {self.writer.printer.dim(self.loop.extent)};"),)

    def each(self, body: tuple[CNode, ...]) -> tuple[CNode, ...]:
        """A vector loop over the lanes."""
        extent = str(self.size) if self.fixed else "lanes"
        head = self.writer.header(identifier(self.loop.var), extent)
        return Directive(self.writer.dialect.simd), Block(head, body)

    def keep(self, name: str, dtype: DType) -> Line:
        """Declare the array of a value."""
        self.held[name] = dtype
        kind = self.writer.dialect.type(dtype)
        return Line(f"alignas(64) {kind} {identifier(name)}_lanes[{self.size}];")

    def read(self, values: tuple[Scalar, ...]) -> tuple[CNode, ...]:
        """Bring the values that `values` use into the loop's scope."""
        used = {n.name for v in values for n in postorder(v) if isinstance(n, Name)}
        return tuple(
            Line(
                f"const {self.writer.dialect.type(dtype)} {identifier(name)} = "
                f"{identifier(name)}_lanes[{identifier(self.loop.var)}];"
            )
            for name, dtype in self.held.items()
            if name in used
        )

    def plain(self, stmt: Stmt) -> tuple[CNode, ...]:
        """A let or a store for all lanes."""
        before = self.read(scalars(stmt))
        inner = self.writer.statement(stmt)
        if not isinstance(stmt, Let):
            return self.each((*before, *inner))
        declare = self.keep(stmt.name, stmt.value.dtype)
        lane = f"{identifier(stmt.name)}_lanes[{identifier(self.loop.var)}]"
        return (declare, *self.each((*before, *inner, Line(f"{lane} = {identifier(stmt.name)};"))))

    def fold(self, fold: Fold) -> tuple[CNode, ...]:
        """A fold with one state per lane: the loops over its axes around a vector loop over lanes."""
        monoid, kinds = self.writer.monoid(fold)
        rows = weighted_rows(fold, self.loop, self.held, self.writer)
        if rows is not None:
            return self.keep(fold.states[0], f32), rows
        before = self.read(fold.values)
        starts = monoid.identity(kinds)
        var = identifier(self.loop.var)
        nodes: list[CNode] = []
        for state, start in zip(fold.states, starts, strict=True):
            nodes.append(self.keep(state, start.dtype))
            text = self.writer.printer.value(start, {})
            nodes += self.each((Line(f"{identifier(state)}_lanes[{var}] = {text};"),))
        states = tuple(
            Line(
                f"{self.writer.dialect.type(start.dtype)}& {identifier(state)} = "
                f"{identifier(state)}_lanes[{var}];"
            )
            for state, start in zip(fold.states, starts, strict=True)
        )
        return (*nodes, *self.nest(fold, fold.axes, (*before, *states)))

    def nest(
        self, fold: Fold, axes: tuple[Axis, ...], before: tuple[CNode, ...]
    ) -> tuple[CNode, ...]:
        """The loops over `axes`, the merge of one point innermost."""
        if not axes:
            monoid, _ = self.writer.monoid(fold)
            return self.each((*before, *self.writer.merge_point(fold, monoid, fold.states)))
        first, *rest = axes
        with self.writer.scope(first.var, first.extent):
            inner = self.nest(fold, tuple(rest), before)
        extent = self.writer.printer.dim(first.extent)
        loop = Block(self.writer.header(identifier(first.var), extent), inner)
        taps = prod(a.extent for a in axes if isinstance(a.extent, int))
        window = all(isinstance(a.extent, int) and a.extent <= LONGEST for a in fold.axes)
        if window and taps <= MOST_TAPS:
            return (Directive(self.writer.dialect.unroll(taps)), loop)
        return (loop,)
