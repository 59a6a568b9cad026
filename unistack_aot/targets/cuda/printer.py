"""How a GPU runs parallel loops and shared folds: block, thread and lane numbers, reductions.

Not here: tiles (tiles.py).
"""

from __future__ import annotations

from unistack_aot.base.dtypes import DType
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import bounds, simplify
from unistack_aot.codegen.ctree import Block, CNode, Line
from unistack_aot.codegen.dialect import Dialect
from unistack_aot.codegen.expr import identifier
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.mcir.layout import PLAIN
from unistack_aot.mcir.monoids import MONOIDS, Monoid
from unistack_aot.mcir.nodes import (
    Attend,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Loop,
    Role,
    Store,
    Stream,
    Sync,
    Tile,
)
from unistack_aot.mcir.transform import uses_lanes
from unistack_aot.targets.cuda.attend import AttentionKernel, attend_nodes, find_attend
from unistack_aot.targets.cuda.tiles import TileKernel, find_tiles, tile_statement
from unistack_aot.targets.cuda.wide import Wide

WARP = 32
BANK = 4  # bytes of one shared-memory bank


class DevicePrinter:
    """Prints what only a GPU knows; collects the monoids and the shared memory that a kernel needs."""

    vectors = True

    def __init__(self, dialect: Dialect, kernel: Kernel) -> None:
        self.dialect = dialect
        self.group = kernel.group
        self.tiles: TileKernel | None = find_tiles(kernel.body)
        self.attention: AttentionKernel | None = find_attend(kernel.body)
        self.monoids: dict[str, tuple[str, tuple[DType, ...]]] = {}
        self.scratch: list[str] = []
        self.near: dict[str, Tile] = {}
        self.near_bytes = 0

    # --- loops ---------------------------------------------------------------------------------------

    def loop(self, loop: Loop, writer: KernelWriter) -> tuple[CNode, ...]:
        """GRID: one iteration per block. GROUP: over the block's threads, or its warps. LANE: over a warp's lanes."""
        match loop.role:
            case Role.GRID:
                return self._grid(loop, writer)
            case Role.GROUP if uses_lanes(loop.body):
                return self._shared(loop, "ua::warp_index()", self.group // WARP, writer)
            case Role.GROUP:
                return self._shared(loop, "ua::thread_index()", self.group, writer)
            case Role.LANE:
                return self._shared(loop, "ua::lane_index()", WARP, writer)
            case Role.VECTOR:
                return self._vector(loop, writer)
            case _:
                raise IRError(f"a GPU has no loop role {loop.role.value}")

    def _grid(self, loop: Loop, writer: KernelWriter) -> tuple[CNode, ...]:
        grid = grid_loops(loop)
        kind = self.dialect.index_type
        live = [each for each in grid if each.extent != 1]
        lines: list[CNode] = []
        rest = "blockIdx.x"
        # A grid has less than 2^31 blocks, so that no loop of it has more steps, whatever sizes are.
        if len(live) > 1:
            lines.append(Line("unsigned tile = blockIdx.x;"))
            rest = "tile"
        for each in reversed(live[1:]):
            size = writer.printer.dim(each.extent)
            extent = (
                f"{size}u" if isinstance(each.extent, int) else f"static_cast<unsigned>({size})"
            )
            lines.append(Line(f"const {kind} {identifier(each.var)} = tile % {extent};"))
            lines.append(Line(f"tile /= {extent};"))
        for each in live[:1]:
            lines.append(Line(f"const {kind} {identifier(each.var)} = {rest};"))
        for each in grid:
            if each.extent == 1:
                lines.append(Line(f"constexpr {kind} {identifier(each.var)} = 0;"))
        return (*lines, *self._inside(grid, 0, writer))

    def _inside(self, grid: list[Loop], depth: int, writer: KernelWriter) -> tuple[CNode, ...]:
        if depth == len(grid):
            return writer.body(grid[-1].body)
        with writer.scope(grid[depth].var, grid[depth].extent):
            return self._inside(grid, depth + 1, writer)

    def _shared(
        self, loop: Loop, worker: str, workers: int, writer: KernelWriter
    ) -> tuple[CNode, ...]:
        """Iterations over `workers` workers, of which this is number `worker`."""
        kind, var = self.dialect.index_type, identifier(loop.var)
        extent = simplify(loop.extent, writer.printer.ranges)
        with writer.scope(loop.var, loop.extent):
            body = writer.body(loop.body)
        if extent == 1:
            return (Block(f"if ({worker} == 0)", (Line(f"constexpr {kind} {var} = 0;"), *body)),)
        most = extent if isinstance(extent, int) else bounds(extent, writer.printer.ranges)[1]
        if extent == workers:
            return (Block("", (Line(f"const {kind} {var} = {worker};"), *body)),)
        text = writer.printer.dim(extent)
        if most is not None and most <= workers:
            head = f"if (const {kind} {var} = {worker}; {var} < {text})"
            return (Block(head, body),)
        return (Block(f"for ({kind} {var} = {worker}; {var} < {text}; {var} += {workers})", body),)

    def _vector(self, loop: Loop, writer: KernelWriter) -> tuple[CNode, ...]:
        """Wide loads, one unrolled loop over the elements in registers, wide stores."""
        if not isinstance(loop.extent, int):
            raise IRError(f"a vector loop of {loop.extent} steps")
        wide = Wide(loop.var, loop.extent, writer)
        with writer.scope(loop.var, loop.extent):
            return wide.around(loop.body)

    # --- folds ---------------------------------------------------------------------------------------

    def fold(self, fold: Fold, writer: KernelWriter) -> tuple[CNode, ...]:
        """Each worker folds its share; then the shares are merged across lanes or threads."""
        monoid, kinds = writer.monoid(fold)
        worker, workers = self._workers(fold)
        axis = fold.axes[0]
        kind, var = self.dialect.index_type, identifier(axis.var)
        extent = writer.printer.dim(axis.extent)
        with writer.scope(axis.var, axis.extent):
            inner = self._share(fold, monoid, writer)
        head = f"for ({kind} {var} = {worker}; {var} < {extent}; {var} += {workers})"
        declare = writer.declare_states(fold, monoid, kinds)
        return (*declare, Block(head, inner), *self._merge(fold, kinds))

    def _workers(self, fold: Fold) -> tuple[str, int]:
        match fold.role:
            case Role.LANE:
                return "ua::lane_index()", WARP
            case Role.GROUP:
                return "ua::thread_index()", self.group
            case _:
                raise IRError(f"a GPU has no fold role {fold.role.value}")

    def _share(self, fold: Fold, monoid: Monoid, writer: KernelWriter) -> tuple[CNode, ...]:
        """One step of a worker: a point, or a vector of points."""
        if len(fold.axes) == 1:
            return (*writer.body(fold.body), *writer.merge_point(fold, monoid, fold.states))
        lane = fold.axes[1]
        if not isinstance(lane.extent, int):
            raise IRError(f"a vector of {lane.extent} points")
        wide = Wide(lane.var, lane.extent, writer)
        with writer.scope(lane.var, lane.extent):
            return wide.folded(fold, monoid)

    def _merge(self, fold: Fold, kinds: tuple[DType, ...]) -> tuple[CNode, ...]:
        name = self.monoid_name(fold.monoid, kinds)
        states = ", ".join(identifier(s) for s in fold.states)
        if fold.role is Role.LANE:
            call = f"ua::warp_reduce<{name}>({{{states}}})"
        else:
            warps = self.group // WARP
            self.scratch.append(f"ua::reduce_scratch<{name}, {warps}>()")
            call = f"ua::block_reduce<{name}, {warps}>({{{states}}}, shared)"
        result = f"{identifier(fold.states[0])}_all"
        back = tuple(
            Line(f"{identifier(state)} = {result}.at{k};") for k, state in enumerate(fold.states)
        )
        return (Line(f"const {name}::State {result} = {call};"), *back)

    def monoid_name(self, monoid: str, kinds: tuple[DType, ...]) -> str:
        """The struct that holds a monoid's merge for input dtypes; printed once per program."""
        fields = MONOIDS[monoid].fields(kinds)
        name = "_".join((monoid, *(d.name for d in fields)))
        self.monoids[name] = (monoid, kinds)
        return name

    @property
    def shared_bytes(self) -> int:
        """Shared bytes of near tiles, before any reduction's scratch."""
        if self.attention is not None:
            return self.attention.shared_bytes
        return self.near_bytes if self.tiles is None else self.tiles.shared_bytes

    # --- the rest --------------------------------------------------------------------------------------

    def tile(
        self, stmt: Tile | Fill | Contract | Drain | Attend | Stream | Sync, writer: KernelWriter
    ) -> tuple[CNode, ...]:
        """A barrier; tiles proper are printed by tiles.py."""
        match stmt:
            case Sync():
                return (Line("__syncthreads();"),)
            case Attend() if self.attention is not None:
                return attend_nodes(self.attention, writer)
            case Tile() | Fill() | Contract() | Drain() | Stream() if self.tiles is not None:
                return tile_statement(stmt, self.tiles, writer)
            case Tile():
                return self._near(stmt, writer)
            case Fill():
                return self._fill(stmt, writer)
            case _:
                raise IRError(f"cannot print {type(stmt).__name__} outside a tile kernel")

    def _near(self, tile: Tile, writer: KernelWriter) -> tuple[CNode, ...]:
        """A near tile of its own; rows are one bank longer than they need, so that columns meet no conflict."""
        rows, cols = tile.shape
        if not isinstance(rows, int) or not isinstance(cols, int):
            raise IRError(f"near tile {tile.name} has no constant shape")
        pitch = cols + max(1, BANK // tile.dtype.bytes)
        writer.printer.addresses.shapes[tile.name] = (rows, pitch)
        writer.printer.addresses.layouts[tile.name] = PLAIN
        kind = self.dialect.type(tile.dtype)
        place = f"reinterpret_cast<{kind}*>(shared + {self.near_bytes})"
        self.near_bytes += -(-rows * pitch * tile.dtype.bytes // 128) * 128
        self.near[tile.name] = tile
        return (Line(f"{kind}* const {identifier(tile.name)} = {place};"),)

    def _fill(self, fill: Fill, writer: KernelWriter) -> tuple[CNode, ...]:
        """All threads copy a rectangle into a near tile, neighbouring threads along its rows."""
        rows, cols = self.near[fill.tile].shape
        kind, words = self.dialect.index_type, writer.printer
        guards = [
            f"{local} < {words.dim(span.extent)}"
            for local, span, size in (("row", fill.rows, rows), ("col", fill.cols, cols))
            if span.extent != size
        ]
        inner: list[CNode] = []
        held = dict(words.ranges)
        for local, span in (("row", fill.rows), ("col", fill.cols)):
            words.ranges[span.var] = (0, None)
            inner.append(
                Line(f"const {kind} {identifier(span.var)} = {words.dim(span.first)} + {local};")
            )
        source = words.element(fill.source.buffer, fill.source.index, {})
        words.ranges.clear()
        words.ranges.update(held)
        pitch = words.addresses.shapes[fill.tile][1]
        inner.append(Line(f"{identifier(fill.tile)}[row * {pitch} + col] = {source};"))
        copy = (Block(f"if ({' && '.join(guards)})", tuple(inner)),) if guards else tuple(inner)
        split = (Line(f"const int row = at / {cols}, col = at % {cols};"),)
        head = f"for (int at = ua::thread_index(); at < {rows} * {cols}; at += {self.group})"
        return (Block(head, (*split, *copy)),)

    def combine(self, store: Store, place: str, value: str) -> str:
        """An atomic update: other threads may combine with the same element."""
        return f"ua::combine_{store.combine}(&{place}, {value});"


def grid_loops(loop: Loop) -> list[Loop]:
    """The GRID loops nested directly inside each other."""
    grid = [loop]
    while len(grid[-1].body) == 1:
        inner = grid[-1].body[0]
        if not isinstance(inner, Loop) or inner.role is not Role.GRID:
            break
        grid.append(inner)
    return grid
