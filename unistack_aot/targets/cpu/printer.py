"""How the host runs parallel loops and vector folds. Not here: tile instructions (tiles.py)."""

from __future__ import annotations

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import symbols
from unistack_aot.codegen.ctree import Block, CNode, Directive, Line
from unistack_aot.codegen.dialect import Dialect
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import Name
from unistack_aot.mcir.monoids import Monoid
from unistack_aot.mcir.nodes import (
    Attend,
    Contract,
    Drain,
    Fill,
    Fold,
    Loop,
    Role,
    Store,
    Stream,
    Sync,
    Tile,
)
from unistack_aot.mcir.winograd import FORMS
from unistack_aot.targets.cpu.attention import attention_call
from unistack_aot.targets.cpu.depthwise import window_row
from unistack_aot.targets.cpu.dialect import DIALECT
from unistack_aot.targets.cpu.lanes import lane_loop
from unistack_aot.targets.cpu.tiles import panel_call
from unistack_aot.targets.cpu.winograd import winograd_call

# Independent partial states, enough to hide the latency of an addition on any level up to AVX-512.
LANES = 16
PARTIALS = 32  # partial sums: four vectors with AVX2, as many as an addition takes cycles


class HostPrinter:
    """Prints what only the host knows."""

    dialect: Dialect = DIALECT
    vectors = False

    def __init__(self) -> None:
        self.pending: dict[str, Contract] = {}

    def loop(self, loop: Loop, writer: KernelWriter) -> tuple[CNode, ...]:
        """GRID loops, nested ones joined, as tasks of the thread pool; VECTOR loops around folds as lanes."""
        if loop.role is Role.VECTOR:
            return lane_loop(loop, writer)
        if loop.role is not Role.GRID:
            raise IRError(f"the host has no loop role {loop.role.value}")
        grid = [loop]
        while (inner := _joining(grid)) is not None:
            grid.append(inner)
        extents = [writer.printer.dim(each.extent) for each in grid]
        decode: list[CNode] = []
        for position in range(len(grid) - 1, 0, -1):
            var = identifier(grid[position].var)
            decode.append(Line(f"const int64_t {var} = task % {extents[position]};"))
            decode.append(Line(f"task /= {extents[position]};"))
        decode.append(Line(f"const int64_t {identifier(loop.var)} = task;"))
        body = self._inside(grid, 0, writer)
        head = f"ua::parallel_for({' * '.join(extents)}, [&](int64_t task)"
        return (Block(head, (*decode, *body), ");"),)

    def _inside(self, grid: list[Loop], depth: int, writer: KernelWriter) -> tuple[CNode, ...]:
        if depth == len(grid):
            body = grid[-1].body
            return window_row(body, writer) or writer.body(body)
        with writer.scope(grid[depth].var, grid[depth].extent):
            return self._inside(grid, depth + 1, writer)

    def fold(self, fold: Fold, writer: KernelWriter) -> tuple[CNode, ...]:
        """A fold in vectors along its last axis: lanes of partial states, merged at the end."""
        if fold.role is not Role.VECTOR:
            raise IRError(f"the host has no fold role {fold.role.value}")
        monoid, kinds = writer.monoid(fold)
        if fold.monoid in ("sum", "prod"):
            return (
                *writer.declare_states(fold, monoid, kinds),
                *self._plain(fold, 0, monoid, writer),
            )
        lanes: list[CNode] = []
        for state, start in zip(fold.states, monoid.identity(kinds), strict=True):
            kind = self.dialect.type(start.dtype)
            text = writer.printer.value(start, {})
            name = f"{identifier(state)}_lanes"
            lanes.append(Line(f"{kind} {name}[{LANES}];"))
            lanes.append(Line(f"for (int lane = 0; lane < {LANES}; ++lane) {name}[lane] = {text};"))
        loops = self._lanes(fold, 0, monoid, writer)
        return (*lanes, *loops, *self._merge_lanes(fold, monoid, writer))

    def _plain(
        self, fold: Fold, depth: int, monoid: Monoid, writer: KernelWriter
    ) -> tuple[CNode, ...]:
        """Sums and products: the compiler keeps partial results per lane itself."""
        axis = fold.axes[depth]
        last = depth == len(fold.axes) - 1
        with writer.scope(axis.var, axis.extent):
            if last:
                inner = writer.merge_point(fold, monoid, fold.states)
            else:
                inner = self._plain(fold, depth + 1, monoid, writer)
        head = writer.header(identifier(axis.var), writer.printer.dim(axis.extent))
        loop = Block(head, inner)
        if not last:
            return (loop,)
        if isinstance(axis.extent, int) and axis.extent < 2 * PARTIALS:
            return _reduction(fold, identifier(fold.states[0])), loop
        return self._partials(fold, inner, writer)

    def _partials(
        self, fold: Fold, point: tuple[CNode, ...], writer: KernelWriter
    ) -> tuple[CNode, ...]:
        """A long sum or product in several independent vectors of partial results.

        The compiler's own reduction keeps one vector and waits for each addition: 17 against 33 GFLOP/s, rows of 256.
        """
        axis, state = fold.axes[-1], identifier(fold.states[0])
        var, extent = identifier(axis.var), writer.printer.dim(axis.extent)
        lanes, start = f"{state}_lanes", "0" if fold.monoid == "sum" else "1"
        monoid, kinds = writer.monoid(fold)
        kind = self.dialect.type(monoid.fields(kinds)[0])
        each = f"for (int lane = 0; lane < {PARTIALS}; ++lane)"
        here = Line(f"const int64_t {var} = {var}_base + lane;")
        wide = Block(each, (here, Line(f"{kind}& {state} = {lanes}[lane];"), *point))
        operator = "+" if fold.monoid == "sum" else "*"
        return (
            Line(f"{kind} {lanes}[{PARTIALS}];"),
            Line(f"{each} {lanes}[lane] = {start};"),
            Line(f"int64_t {var}_base = {writer.start};"),
            Block(
                f"for (; {var}_base + {PARTIALS} <= {extent}; {var}_base += {PARTIALS})",
                (Directive(self.dialect.simd), wide),
            ),
            _reduction(fold, state),
            Block(f"for (int64_t {var} = {var}_base; {var} < {extent}; ++{var})", point),
            _reduction(fold, state),
            Line(f"{each} {state} {operator}= {lanes}[lane];"),
        )

    def _lanes(
        self, fold: Fold, depth: int, monoid: Monoid, writer: KernelWriter
    ) -> tuple[CNode, ...]:
        axis = fold.axes[depth]
        var, extent = identifier(axis.var), writer.printer.dim(axis.extent)
        with writer.scope(axis.var, axis.extent):
            if depth < len(fold.axes) - 1:
                return (
                    Block(writer.header(var, extent), self._lanes(fold, depth + 1, monoid, writer)),
                )
            point = writer.merge_point(fold, monoid, fold.states)
        held = self._references(fold, monoid, writer)
        base = f"{var}_base"
        wide = Block(
            f"for (int lane = 0; lane < {LANES}; ++lane)",
            (Line(f"const int64_t {var} = {base} + lane;"), *held, *point),
        )
        nodes = (
            Line(f"int64_t {base} = {writer.start};"),
            Block(
                f"for (; {base} + {LANES} <= {extent}; {base} += {LANES})",
                (Directive(self.dialect.simd), wide),
            ),
        )
        if isinstance(axis.extent, int) and axis.extent % LANES == 0 and writer.start == "0":
            return nodes
        # What fills no vector goes to lanes of its own: nothing waits for the element before.
        rest = Block(f"for (int lane = 0; lane < int({extent} - {base}); ++lane)", wide.body)
        return (*nodes, Directive(self.dialect.simd), rest)

    def _references(self, fold: Fold, monoid: Monoid, writer: KernelWriter) -> tuple[CNode, ...]:
        fields = monoid.fields(tuple(v.dtype for v in fold.values))
        return tuple(
            Line(f"{self.dialect.type(d)}& {identifier(s)} = {identifier(s)}_lanes[lane];")
            for s, d in zip(fold.states, fields, strict=True)
        )

    def _merge_lanes(self, fold: Fold, monoid: Monoid, writer: KernelWriter) -> tuple[CNode, ...]:
        """Halves of the lanes joined until one is left; written out, as compilers need the number of lanes."""
        fields = monoid.fields(tuple(v.dtype for v in fold.values))
        held = tuple(Name(s, d) for s, d in zip(fold.states, fields, strict=True))
        other = tuple(Name(f"{s}_lane", d) for s, d in zip(fold.states, fields, strict=True))
        kinds = [self.dialect.type(n.dtype) for n in held]
        names = [identifier(n.name) for n in held]
        merge = writer.assign(held, monoid.merge(held, other))
        nodes: list[CNode] = []
        width = LANES
        while width > 1:
            width //= 2
            read = (
                Line(f"const {kind} {name}_lane = {name}_lanes[lane + {width}];")
                for kind, name in zip(kinds, names, strict=True)
            )
            body = (*self._references(fold, monoid, writer), *read, *merge)
            head = f"for (int lane = 0; lane < {width}; ++lane)"
            nodes += (Directive(self.dialect.simd), Block(head, body))
        ends = (
            Line(f"{kind} {name} = {name}_lanes[0];")
            for kind, name in zip(kinds, names, strict=True)
        )
        return (*nodes, *ends)

    def tile(
        self, stmt: Tile | Fill | Contract | Drain | Attend | Stream | Sync, writer: KernelWriter
    ) -> tuple[CNode, ...]:
        """A register tile exists only between its contraction and its drain, which print as one call."""
        match stmt:
            case Tile():
                return ()
            case Contract():
                self.pending[stmt.acc] = stmt
                return ()
            case Attend():
                return attention_call(stmt, writer)
            case Drain():
                contract = self.pending.pop(stmt.acc)
                call = winograd_call if contract.via in FORMS else panel_call
                return call(contract, stmt, writer)
            case _:
                raise IRError(f"the host cannot print {type(stmt).__name__}")

    def combine(self, store: Store, place: str, value: str) -> str:
        """Combining stores run in sequential loops here, so a plain read-modify-write does."""
        dtype = store.value.dtype
        kind = self.dialect.type(dtype)
        if dtype.is_narrow:
            old, value = (f"ua::cast<float, {kind}>({each})" for each in (place, value))
            return (
                f"{place} = ua::cast<{kind}, float>({self._combined(store.combine, old, value)});"
            )
        return f"{place} = ({kind})({self._combined(store.combine, place, value)});"

    def _combined(self, combine: str, old: str, value: str) -> str:
        """The old value and the new one under "add", "mul", "min" or "max"."""
        return self.dialect.function(combine, [old, value])


def _joining(grid: list[Loop]) -> Loop | None:
    """The GRID loop right inside, if its extent is the same in every iteration of those around it."""
    inner = grid[-1].body[0] if len(grid[-1].body) == 1 else None
    if not isinstance(inner, Loop) or inner.role is not Role.GRID:
        return None
    return None if symbols(inner.extent) & {each.var for each in grid} else inner


def _reduction(fold: Fold, state: str) -> Directive:
    return Directive(
        f"#pragma omp simd reduction({'+' if fold.monoid == 'sum' else '*'} : {state})"
    )
