"""What one core does while it runs a scheduled kernel: seconds by named term, and bytes it reads again and again.

The work is read off the structure of the kernel (roles, folds, tiles, strides of accesses); every
number of the machine comes from its property map. Not here: the machine's numbers (core_rates.py), how
terms add up (cost.py), how many bytes a launch moves at least (mcir/counts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import ceil, log2, prod

from unistack_aot.base.dtypes import DType, bool_, f32
from unistack_aot.base.symbolic import evaluate, substitute, symbol, symbols
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import Call, Cast, Index, Load, Name, Scalar, postorder
from unistack_aot.mcir.accesses import accesses
from unistack_aot.mcir.counts import traffic
from unistack_aot.mcir.nodes import (
    Attend,
    Axis,
    Contract,
    Drain,
    Fold,
    Kernel,
    Let,
    Loop,
    Role,
    Stmt,
    Store,
    Stream,
    When,
)
from unistack_aot.mcir.transform import scalars, substitute_vars
from unistack_aot.mcir.winograd import FORMS, TAPS, Form
from unistack_aot.schedule.core_rates import core_rates
from unistack_aot.schedule.core_terms import Extents, Point, Work, conditional, issued
from unistack_aot.schedule.core_tiles import Gathered, add_gathered, add_tiles
from unistack_aot.schedule.fold_merges import chain_of, merge_cost
from unistack_aot.schedule.panels import PANEL

FOLD_LANES = 16  # partial states of a vector fold
WINOGRAD_TILES = 32  # transformed together (kWinogradTiles of ua/winograd_transform.h)
# Instructions per point of a tile and vector of channels, loads and stores included, as counted in F(4x4, 3x3) there.
INPUT_TRANSFORM, OUTPUT_TRANSFORM = 204 / 36, 214 / 36
# Of ua/attention_stream.h: a score is copied, changed, compared with the maximum and made a weight, each read or
# written; vector instructions of a weight and its sum; those of a row that joins lanes and finds its factor;
# instructions to turn one element of the keys, in blocks of 4 x 4.
SCORE_PASSES, WEIGHT, JOINED, TURNED = 7, 20, 54, 1.0
# Instructions a core looks ahead, in which independent folds overlap: assumed for a current core, not probed.
WINDOW = 256


def bound_kernel(kernel: Kernel, dims: Mapping[str, int]) -> Kernel:
    """The kernel with numbers for its dimensions."""
    params = tuple(
        replace(p, shape=tuple(substitute(e, dims) for e in p.shape)) for p in kernel.params
    )
    return replace(kernel, params=params, body=substitute_vars(kernel.body, dict(dims)))


def moved_bytes(kernel: Kernel) -> dict[tuple[str, bool], int]:
    """Bytes of each parameter that a launch reads (False) and writes (True); dimensions are numbers."""
    return {key: evaluate(amount, {}) for key, amount in traffic(kernel).items()}


def core_work(kernel: Kernel, machine: Machine) -> Work:
    """The work of a kernel whose dimensions are numbers (`bound_kernel`)."""
    core = Core(kernel, machine)
    core.body(kernel.body, 1.0)
    return core.work


def row_of_windows(loop: Loop) -> bool:
    """Whether iterations of a loop sum windows of a few lanes: a row of pixels of a depthwise convolution.

    Its pixels are summed side by side (ua/conv.h), so that a weight is loaded once for many.
    """
    lanes = loop.body[0] if len(loop.body) == 1 and loop.role is Role.SEQ else None
    if not isinstance(lanes, Loop) or lanes.role is not Role.VECTOR or lanes.extent != PANEL:
        return False
    fold = lanes.body[0]
    if not isinstance(fold, Fold) or fold.monoid != "sum" or fold.body:
        return False
    return all(isinstance(axis.extent, int) for axis in fold.axes)


class Core(Extents):
    """One core at work on one kernel."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        super().__init__()
        self.kernel, self.machine = kernel, machine
        self.work = Work()
        self.rates = core_rates(machine)
        self.work.entries.update(self.rates.entries)
        self.pending: dict[str, Contract] = {}
        self.tasks = 0  # of the loops over tasks around; 0 outside of them
        # The loop whose iterations share in registers what does not change along it.
        self.pixels = ""

    # --- statements ---------------------------------------------------------------------------------

    def body(self, body: tuple[Stmt, ...], times: float) -> None:
        """Every statement, executed `times` times."""
        straight = tuple(s for s in body if isinstance(s, Let | Store))
        if straight:
            self.points(straight, None, 1, False, times)
        for stmt in body:
            self.statement(stmt, times)

    def statement(self, stmt: Stmt, times: float) -> None:
        """A statement other than straight code."""
        match stmt:
            case Loop():
                self.loop(stmt, times)
            case Stream():
                with_ = self.size(stmt.extent) / max(1, stmt.step)
                self.inside(stmt.var, stmt.extent)
                self.body(stmt.body, times * with_)
            case Fold():
                self.fold(stmt, times)
            case When():
                self.body(stmt.body, times)
            case Contract():
                self.pending[stmt.acc] = stmt
            case Drain():
                self.tile(self.pending.pop(stmt.acc), stmt, times)
            case Attend():
                self.attend(stmt, times)
            case _:
                pass

    def loop(self, loop: Loop, times: float) -> None:
        """A loop by its role."""
        count = ceil(self.size(loop.extent) / loop.step)
        around = self.tasks
        if loop.role is Role.GRID:
            self.share(max(1, count), times)
        folds = any(isinstance(s, Fold) for s in loop.body)
        self.pixels = loop.var if row_of_windows(loop) else self.pixels
        self.inside(loop.var, loop.extent)
        if all(isinstance(s, Let | Store) for s in loop.body):
            self.points(loop.body, loop.var, count, loop.role is Role.VECTOR, times)
        elif loop.role is Role.VECTOR and folds:
            self.lanes(loop, count, times)
        else:
            self.body(loop.body, times * count)
        self.tasks = around
        self.pixels = "" if self.pixels == loop.var else self.pixels

    def share(self, count: int, times: float) -> None:
        """Tasks for cores: those of nested loops multiply, and cores meet once for all of them."""
        self.work.regions += 0 if self.tasks else times
        self.tasks = max(1, self.tasks) * count
        self.work.tasks = max(self.work.tasks, self.tasks)

    # --- straight code ------------------------------------------------------------------------------

    def points(
        self, body: tuple[Stmt, ...], var: str | None, count: float, wide: bool, times: float
    ) -> None:
        """`count` iterations of straight code over `var`, in vectors if `wide`."""
        if not count or not times:
            return
        wide = wide and not conditional(body, self.changing(body, var))
        point = self.point(body, var, wide)
        # Of a constant rest, compilers make half a vector first.
        steps = self.filled(count, least=self.rates.lane_bytes / 8) if wide else count
        self.spend(point, steps, times)
        if point.gathered:
            self.work.seconds["elements"] += point.gathered * count * self.rates.element * times

    def filled(self, count: float, lanes: float = 0.0, least: float = 0.0) -> float:
        """Iterations that a vector loop costs: what fills no vector (of `least` lanes at the end) runs one by one.

        A part of a vector, or a single element, takes as long as a whole one.
        """
        lanes = lanes or self.rates.lane_bytes / 4
        least = least or lanes
        rest = count % lanes
        return (count // lanes + rest // least + rest % least) * lanes

    def spend(self, point: Point, count: float, times: float, overlaps: bool = True) -> None:
        """Add the slower of the things that a core does at once: `count` points, `times` times, one chain each time."""
        issue = point.instructions * count / self.rates.issue
        through = point.bytes * count / self.rates.l1
        length = (point.instructions + point.bytes / self.rates.lane_bytes) * count
        overlap = max(1.0, min(WINDOW / max(length, 1.0), times)) if overlaps else 1.0
        chain = point.chain * count * self.rates.latency / overlap
        found = {"instructions": issue, "l1": through, "chain": chain}
        slowest = max(found, key=lambda name: found[name])
        self.work.seconds[slowest] += found[slowest] * times

    def point(self, body: tuple[Stmt, ...], var: str | None, wide: bool) -> Point:
        """What one iteration costs; what does not depend on `var` is outside the loop."""
        instructions = gathered = moved = 0.0
        found = {(a.buffer, a.offset, a.write): a for a in accesses(self.kernel, body, self.ranges)}
        dtypes = {p.name: p.dtype for p in self.kernel.params}
        for access in found.values():
            stride = access.stride(var) if var is not None else None
            size = dtypes[access.buffer].bytes
            shared = self.pixels and access.stride(self.pixels) == 0
            if (stride == 0 or shared) and not access.write:
                continue
            if wide and stride == 1:
                moved += size
            else:
                instructions += 0 if wide else 1
                gathered += 1 if wide else 0
        instructions += self.operations(body, var, wide)
        if not wide:
            instructions = (instructions + 2) * self.rates.single  # with counter and branch
        return Point(instructions, moved, gathered)

    def operations(self, body: Iterable[Stmt], var: str | None, wide: bool) -> float:
        """Instructions of the formulas of one iteration."""
        changes = self.changing(body, var)
        total = 0.0
        for stmt in body:
            for node in postorder(*scalars(stmt)):
                if not changes(node):
                    continue
                if isinstance(node, Call):
                    total += issued(node.fn) * self.width(node.dtype, wide)
                elif isinstance(node, Cast):
                    total += self.width(node.dtype, wide)
        return total

    def changing(self, body: Iterable[Stmt], var: str | None) -> Callable[[Scalar], bool]:
        """Which values of a body change from one iteration of `var` to the next."""
        moving: set[str] = set()
        for stmt in body:
            if isinstance(stmt, Let) and any(self.moves(r, var, moving) for r in scalars(stmt)):
                moving.add(stmt.name)
        return lambda value: self.moves(value, var, moving)

    def width(self, dtype: DType, wide: bool) -> float:
        """Instructions per element for one operation on a vector of this dtype."""
        return (4 if dtype is bool_ else dtype.bytes) / self.rates.lane_bytes if wide else 1.0

    def moves(self, value: Scalar, var: str | None, moving: set[str]) -> bool:
        """Whether a value changes from one iteration of `var` to the next."""
        if var is None:
            return True
        for node in postorder(value):
            match node:
                case Load():
                    if any(
                        var in symbols(e) for e in node.index if not isinstance(e, Scalar)
                    ) or any(isinstance(e, Scalar) for e in node.index):
                        return True
                case Index():
                    if var in symbols(node.dim):
                        return True
                case Name():
                    if node.name in moving:
                        return True
                case _:
                    pass
        return False

    # --- folds --------------------------------------------------------------------------------------

    def fold(self, fold: Fold, times: float) -> None:
        """A reduction by one worker: in vectors with partial states, or one element after the other."""
        for axis in fold.axes:
            self.inside(axis.var, axis.extent)
        sizes = [self.size(axis.extent) for axis in fold.axes]
        count = prod(sizes)
        if fold.body:
            self.body(fold.body, times * count)
        changes = self.changing((), fold.axes[-1].var)
        wide = fold.role is Role.VECTOR and not conditional((fold,), changes)
        point = self.fold_point(fold, fold.axes[-1].var, wide)
        simple = fold.monoid in ("sum", "prod")
        depth = chain_of(fold)
        states = self.rates.lane_bytes / 4 if simple else FOLD_LANES
        parallel = states if wide else 1
        # What fills no vector of partial states goes in halves of vectors, then one by one, as in other loops.
        length = self.filled(sizes[-1], parallel, parallel / 2 if wide and not simple else 0.0)
        if point.gathered:
            self.work.seconds["elements"] += point.gathered * count * self.rates.element * times
        self.spend(replace(point, chain=depth / parallel), length, times * prod(sizes[:-1]))
        runs = times * prod(sizes[:-1])
        if wide and simple:
            self.work.seconds["chain"] += times * log2(states) * depth * self.rates.latency
        elif wide:  # halves of the partial states are joined until one is left
            joined = log2(states)
            self.spend(Point(merge_cost(fold), 0.0, 0.0, chain=depth), joined, runs)

    def fold_point(self, fold: Fold, var: str | None, wide: bool) -> Point:
        """One point of a fold: its values and the merge."""
        point = self.point((replace(fold, axes=(), body=()),), var, wide)
        merge = 0.0 if self.pixels else merge_cost(fold)  # there the sum is part of a multiply-add
        width = 4 / self.rates.lane_bytes if wide else self.rates.single
        return replace(point, instructions=point.instructions + merge * width)

    def lanes(self, loop: Loop, count: float, times: float) -> None:
        """A vector loop around folds: every iteration has its own state, kept in the first cache between points."""
        filled = ceil(count * 4 / self.rates.lane_bytes) * self.rates.lane_bytes / 4
        for stmt in loop.body:
            if not isinstance(stmt, Fold):
                self.points((stmt,), loop.var, filled, True, times)
                continue
            for axis in stmt.axes:
                self.inside(axis.var, axis.extent)
            steps = prod(self.size(axis.extent) for axis in stmt.axes)
            point = self.fold_point(stmt, loop.var, True)
            # States stay in registers where the compiler can unroll; else they are stored and forwarded,
            # and folds do not overlap.
            fixed = all(isinstance(axis.extent, int) for axis in stmt.axes)
            wait = chain_of(stmt)
            self.spend(replace(point, chain=wait / filled), filled * steps, times, overlaps=fixed)

    # --- tiles --------------------------------------------------------------------------------------

    def tile(self, stmt: Contract, drain: Drain, times: float) -> None:
        """A blocked contraction and its epilogue."""
        for span in (stmt.rows, stmt.cols):
            self.ranges[span.var] = (0, None)
        rows, cols = self.size(stmt.rows.extent), self.size(stmt.cols.extent)
        depth = prod(self.size(axis.extent) for axis in stmt.depth)
        panels = ceil(cols / PANEL)
        form = FORMS.get(stmt.via)
        if form is not None:
            tiles = rows / form.tile**2
            self.winograd(stmt, form, tiles, panels, depth / TAPS**2, times)
        else:
            self.direct(stmt, rows, panels, depth, times)
        lane = f"{drain.cols.var}_lane"
        self.ranges[lane] = (0, PANEL - 1)
        first = self.greatest(
            substitute(stmt.cols.first, dict.fromkeys(symbols(stmt.cols.first), 0))
        )
        body = substitute_vars(drain.body, {drain.cols.var: first + symbol(lane)})
        self.points(body, lane, panels * PANEL, True, times * rows)

    def direct(self, stmt: Contract, rows: float, panels: int, depth: float, times: float) -> None:
        """The sum as it is written, in blocks."""
        row_block, _, depth_block = stmt.blocks
        chunks = max(1, ceil(rows / max(1, row_block)))
        parts = ceil(depth / depth_block) if depth_block else 1
        held = self.kernel.param(stmt.b.buffer).dtype
        if held is f32:
            add_tiles(
                self.work,
                self.rates,
                rows / chunks,
                panels,
                depth / parts,
                times * chunks * parts,
                self.shared(stmt),
            )
        else:
            rate = self.machine.find_rate(stmt.via, held.name)
            rate = rate or self.machine.rate("fma", "f32")  # integers multiply as fast
            self.work.entries[rate.name] = (rate,)
            sums = Gathered(rate.name, rate.value / self.machine.parallel_units, held.bytes)
            add_gathered(self.work, self.rates, sums, rows / chunks, panels, depth, times * chunks)
        if parts > 1:  # partial sums wait in the second cache
            self.work.seconds["l2"] += (
                times * (parts - 1) * 2 * rows * panels * PANEL * 4 / self.rates.l2
            )
        again = times * (chunks - 1) * panels * PANEL * depth
        self.work.again[stmt.b.buffer] += again * held.bytes

    def winograd(
        self,
        stmt: Contract,
        form: Form,
        tiles: float,
        panels: int,
        depth: float,
        times: float,
    ) -> None:
        """Products at every point of some tiles each, between the transforms of both sides."""
        blocks = max(1, ceil(tiles / WINOGRAD_TILES))
        positions = form.points**2
        add_tiles(self.work, self.rates, tiles / blocks, panels, depth, times * blocks * positions)
        vectors = tiles * times * 4 / self.rates.lane_bytes
        inputs, outputs = (form.points**2 * each for each in (INPUT_TRANSFORM, OUTPUT_TRANSFORM))
        transforms = vectors * (depth * inputs + panels * PANEL * outputs)
        self.work.seconds["instructions"] += transforms / self.rates.issue
        # Transformed inputs and products are written and read once each, beyond the first cache.
        moved = times * tiles * positions * (depth + panels * PANEL) * 4
        self.work.seconds["l2"] += 2 * moved / self.rates.l2
        weights = positions * panels * PANEL * depth * 4
        self.work.again[stmt.b.buffer] += times * (blocks - 1) * weights

    def shared(self, stmt: Contract) -> float:
        """The distinct elements of the left operand in a tile, as a share of rows x depth: windows overlap."""
        rows = stmt.rows.var
        entries = [e for e in stmt.a.index if not isinstance(e, int) and rows in e.symbols]
        taps = [a for a in stmt.depth if any(a.var in e.symbols for e in entries)]
        if not taps:
            return 1.0
        found: set[tuple[int, ...]] = set()
        envs: list[dict[str, int]] = [{}]
        for axis in (Axis(rows, 6), *taps):
            envs = [
                {**env, axis.var: v} for env in envs for v in range(int(self.size(axis.extent)))
            ]
        names = set().union(*(e.symbols for e in entries)) - {rows} - {a.var for a in taps}
        for env in envs:
            full = env | dict.fromkeys(names, 0)
            found.add(tuple(evaluate(e, full) for e in entries))
        return len(found) / len(envs)

    def attend(self, stmt: Attend, times: float) -> None:
        """Scores, their weights and the mix of values, for a block of rows."""
        rows, keys = self.size(stmt.rows.extent), self.size(stmt.keys.extent)
        deep, values = self.size(stmt.depth.extent), self.size(stmt.values.extent)
        self.inside(stmt.keys.var, stmt.keys.extent)
        self.ranges[stmt.rows.var] = (0, None)
        at_once = min(keys, stmt.blocks[1] or keys)
        parts = ceil(keys / max(1.0, at_once))
        padded, wide = (ceil(n / PANEL) * PANEL for n in (keys, values))
        self.pack(padded, deep, wide, at_once, times)
        fits = self.rates.tile.rows * at_once * 4 <= self.rates.l1_capacity
        near, rate = ("l1", self.rates.l1) if fits else ("l2", self.rates.l2)
        self.work.seconds[near] += times * rows * padded * SCORE_PASSES * 4 / rate
        # Queries and scores of a register tile stay in the first cache for all panels.
        far = 0.0 if fits else 1.0
        add_tiles(self.work, self.rates, rows, padded / PANEL, deep, times, 0.0)
        add_tiles(self.work, self.rates, rows, wide / PANEL, at_once, times * keys / at_once, far)
        # What was mixed before is read for every further block of keys, and perhaps scaled: read and written once more.
        self.work.seconds["l2"] += times * rows * wide * 3 * (parts - 1) * 4 / self.rates.l2
        score = (Let(stmt.dot, stmt.score),)
        steady = not conditional(score, self.changing(score, stmt.keys.var))
        point = self.point(score, stmt.keys.var, steady)
        self.spend(point, self.filled(keys) if steady else keys, times * rows)
        weight = WEIGHT * 4 / self.rates.lane_bytes * padded + JOINED * self.rates.single * parts
        self.work.seconds["instructions"] += times * rows * weight / self.rates.issue

    def pack(self, keys: float, deep: float, values: float, at_once: float, times: float) -> None:
        """Keys turned and values copied into panels, read and written once, for one block of rows."""
        near = at_once * (deep + values) * 4 <= self.rates.l1_capacity
        rate = self.rates.l1 if near else self.rates.l2
        turned = TURNED * self.rates.single / self.rates.issue
        moved = 2 * 4 / rate
        self.work.seconds["packing"] += times * keys * (deep * max(turned, moved) + values * moved)
