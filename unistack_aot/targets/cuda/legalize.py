"""Turns every launch into what a GPU runs: one nest per kernel, 32-bit arithmetic for narrow floats, roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from unistack_aot.aicf.op import ArrayData
from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import Ranges
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import loads
from unistack_aot.mcir.canonical import canonical, closed, opened
from unistack_aot.mcir.nodes import Access, Kernel, Param
from unistack_aot.mcir.program import Buffer, HostIf, HostLoop, Kind, Launch, Program, Step
from unistack_aot.mcir.transform import all_loads
from unistack_aot.schedule.attention import AttentionSite, find_attention
from unistack_aot.schedule.attention_blocks import choose_attention
from unistack_aot.schedule.block_tiles import (
    block_tiled,
    choose_tile,
    hoisted,
    oriented,
    outputs_of,
    runs_inside,
)
from unistack_aot.schedule.channels_last import (
    TURN_CHANNELS,
    choose_channels_last,
    turned_shape,
)
from unistack_aot.schedule.contraction import Factor, Site, find_site
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.independent import MOVE_OUTSIDE
from unistack_aot.schedule.last_writer import LAST_WRITER
from unistack_aot.schedule.many_narrow import assign_roles
from unistack_aot.schedule.narrow_floats import WIDEN
from unistack_aot.schedule.narrow_storage import narrow_storage
from unistack_aot.schedule.operands import operand
from unistack_aot.schedule.operator import or_same
from unistack_aot.schedule.separation import SEPARATE
from unistack_aot.schedule.split_depth import SPLIT_REDUCE, workspace_shape
from unistack_aot.schedule.steps import LAUNCH_STEPS, choose_steps
from unistack_aot.schedule.stored_runs import STORE_RUNS
from unistack_aot.schedule.tile_constants import packed, packed_param, repacked, suits
from unistack_aot.schedule.tile_instruction import TileInstruction
from unistack_aot.schedule.transposes import SIDE, TURN
from unistack_aot.targets.cuda.instructions import attention_for, instructions_for
from unistack_aot.targets.cuda.spills import (
    CROWDED,
    LOOPS,
    LoopWay,
    Way,
    avoided,
    lighter,
    loop_way,
)
from unistack_aot.targets.target import Avoided

Array = NDArray[Any]


@dataclass
class Legalizer:
    """One program on its way to a GPU; equal kernels are decided once."""

    ranges: Ranges
    machine: Machine
    buffers: dict[str, Buffer]
    constants: dict[str, Array]
    precision: str
    avoid: tuple[Avoided, ...] = ()
    decisions: list[Decision] = field(default_factory=list)
    decided: dict[tuple[Kernel, LoopWay], Kernel] = field(default_factory=dict)

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Every step of a block."""
        result: list[Step] = []
        for step in steps:
            match step:
                case Launch():
                    result.extend(self.launch(step))
                case HostIf():
                    then, otherwise = self.steps(step.then), self.steps(step.otherwise)
                    result.append(replace(step, then=then, otherwise=otherwise))
                case HostLoop():
                    result.append(replace(step, body=self.steps(step.body)))
                case _:
                    result.append(step)
        return tuple(result)

    def launch(self, launch: Launch) -> list[Launch]:
        """The launches that one launch becomes."""
        kernel = opened(launch)
        nests = or_same(SEPARATE(kernel), (kernel,))
        parts = [each for nest in nests for each in self.unordered(nest)]
        return [each for part in parts for each in self.decide(part, launch)]

    def unordered(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """Ordered overwriting updates as kernels without order; any other kernel as it is."""
        name = f"w{len(self.buffers)}"
        found = LAST_WRITER(or_same(MOVE_OUTSIDE(kernel), kernel), name)
        if isinstance(found, No):
            return (kernel,)
        held, result = found[0].outputs[0], found[-1].outputs[0]
        self.buffers[name] = Buffer(name, held.dtype, held.shape)
        because = "the last of the updates of a place writes it; all run side by side"
        self.decisions.append(Decision("updates", result.name, "last writer", because))
        return found

    def decide(self, kernel: Kernel, launch: Launch) -> list[Launch]:
        """The launches of one nest, realised by a tile instruction or with roles for its loops."""
        ways = avoided(self.avoid, launch.origins)
        if CROWDED in ways:
            chosen = "all registers that a group can have"
            self.decisions.append(Decision("spill", _written(kernel), chosen, ways[CROWDED]))
        attended = self.attention(kernel, ways)
        if not isinstance(attended, No):
            return [closed(attended, launch)]
        tiled = self.contraction(kernel, ways)
        if isinstance(tiled, No):
            return [self.roles(closed(kernel, launch))]
        parts = (closed(each, launch) for each in tiled)
        return [each if each.kernel.group else self.roles(each) for each in parts]

    def instead(
        self, subject: str, chosen: str, offered: Sequence[Way], ways: Mapping[str, str]
    ) -> None:
        """Record that a choice was made because those before it spilled."""
        names = {way.name for way in offered}
        reasons = [because for way, because in ways.items() if way in names]
        if reasons:
            self.decisions.append(Decision("spill", subject, chosen, "; ".join(reasons)))

    def roles(self, launch: Launch) -> Launch:
        """A launch of one nest with roles for its loops; equal kernels are decided once."""
        way = loop_way(self.avoid, launch.origins)
        known = (launch.kernel, way)
        if known not in self.decided:
            kernel = or_same(WIDEN(launch.kernel), launch.kernel)
            found, decision = self.loops(kernel, way)
            written = ", ".join(launch.writes())
            self.decisions.append(replace(decision, subject=written))
            self.instead(written, way.name, LOOPS, avoided(self.avoid, launch.origins))
            self.decided[known] = canonical(found)
        return replace(launch, kernel=self.decided[known])

    def loops(self, kernel: Kernel, way: LoopWay) -> tuple[Kernel, Decision]:
        """A launch per step, a near tile that turns a matrix, or workers for elements and rows; and why."""
        steps = choose_steps(kernel, self.ranges, self.machine)
        if not isinstance(steps, No):
            vector = min(self.machine.vector_bytes, way.most.vector_bytes)
            return LAUNCH_STEPS.sure(kernel, self.ranges, self.machine.lanes, vector), steps
        turned = TURN(kernel, self.ranges)
        if isinstance(turned, No) or way is not LOOPS[0]:
            return assign_roles(kernel, self.ranges, self.machine, way.most)
        because = "load and store are contiguous along different axes"
        near = f"near tile {SIDE} x {SIDE}"
        return turned, Decision("map", turned.outputs[0].name, near, because)

    def attention(self, kernel: Kernel, ways: Mapping[str, str]) -> Kernel | No:
        """An attention over blocks of queries, if some block fits and did not spill."""
        site = find_attention(kernel)
        if isinstance(site, No):
            return site
        blocks = attention_for(site.q.dtype, self.precision, self.machine)
        fitting = lighter(blocks, ways)
        chosen = choose_attention(kernel, site, fitting, self.machine, self.ranges)
        if isinstance(chosen, No):
            self.instead(_written(kernel), "loops over far memory", blocks, ways)
            return chosen
        self.decisions.append(chosen[1])
        self.instead(_written(kernel), chosen[1].chosen, blocks, ways)
        return chosen[0]

    def contraction(self, kernel: Kernel, ways: Mapping[str, str]) -> tuple[Kernel, ...] | No:
        """A contraction over near tiles, if some tile instruction pays, between what goes before and after it."""
        site = self.site_of(kernel)
        if isinstance(site, No):
            return site
        operands = (site.a.load.dtype, site.b.load.dtype)
        tiles = instructions_for(operands, site.acc.dtype, self.precision, self.machine)
        chosen = choose_tile(kernel, site, lighter(tiles, ways), self.machine, self.ranges)
        if isinstance(chosen, No):
            self.instead(_written(kernel), "loops over far memory", tiles, ways)
            return chosen
        tile, parts, decision = chosen
        self.decisions.append(decision)
        self.instead(_written(kernel), decision.chosen, tiles, ways)
        before, kernel, site = self.channels_last(kernel, site, tile)
        tail = kernel.with_body(site.tail)
        tail = or_same(WIDEN(tail), tail).body
        kernel, site = self.packed(kernel, replace(site, tail=tail), tile)
        staged = block_tiled(kernel, site, tile, self.machine, self.ranges)
        runs = tile.runs(operand(kernel, site, site.b, site.cols, self.ranges).inner)
        if parts == 1:
            return (*before, STORE_RUNS.sure(staged, runs, self.ranges))
        name = f"w{len(self.buffers)}"
        self.buffers[name] = Buffer(name, site.acc.dtype, workspace_shape(site, parts))
        first, *rest = SPLIT_REDUCE.sure(staged, site, name, parts)
        return (*before, STORE_RUNS.sure(first, runs, self.ranges), *rest)

    def channels_last(
        self, kernel: Kernel, site: Site, tile: TileInstruction
    ) -> tuple[tuple[Kernel, ...], Kernel, Site]:
        """The site over an operand with channels last, after the kernel that turns it, if that pays."""
        chosen = choose_channels_last(kernel, site, tile, self.machine, self.ranges)
        if isinstance(chosen, No):
            return (), kernel, site
        found, decision = chosen
        self.decisions.append(decision)
        name = f"w{len(self.buffers)}"
        self.buffers[name] = Buffer(name, tile.element, turned_shape(found))
        copy, kernel = TURN_CHANNELS.sure(kernel, found, tile.element, name)
        moved = self.site_of(kernel)
        assert not isinstance(moved, No)
        return (copy,), kernel, moved

    def site_of(self, kernel: Kernel) -> Site | No:
        """The contraction that a kernel is, its axes where results, operands and constants want them."""
        site = find_site(kernel)
        if isinstance(site, No):
            return site
        site = hoisted(kernel, oriented(kernel, site, self.ranges), self.ranges)
        fixed = {name for name, buffer in self.buffers.items() if buffer.constant is not None}
        return runs_inside(kernel, site, fixed, self.ranges)

    def rounds_to(self, kernel: Kernel, name: str) -> DType | None:
        """The element type of the tiles whose operand a buffer is, if it is nothing else in the kernel."""
        attended = find_attention(kernel)
        if not isinstance(attended, No):
            return self.attends_in(kernel, attended, name)
        site = find_site(kernel)
        if isinstance(site, No) or site.rest:
            return None
        guards = [x.within for x in (site.a, site.b) if x.within is not None]
        others = [*all_loads(site.tail), *(load for guard in guards for load in loads(guard))]
        if any(load.buffer == name for load in others):
            return None
        site = hoisted(kernel, oriented(kernel, site, self.ranges), self.ranges)
        operands = (site.a.load.dtype, site.b.load.dtype)
        tiles = instructions_for(operands, site.acc.dtype, self.precision, self.machine)
        chosen = choose_tile(kernel, site, tiles, self.machine, self.ranges)
        return None if isinstance(chosen, No) else chosen[0].element

    def attends_in(self, kernel: Kernel, site: AttentionSite, name: str) -> DType | None:
        """The element type of queries, keys and values of the block that is chosen for an attention."""
        others = (*loads(site.score), *all_loads(site.tail))
        blocks = attention_for(site.q.dtype, self.precision, self.machine)
        chosen = choose_attention(kernel, site, blocks, self.machine, self.ranges)
        if isinstance(chosen, No) or any(load.buffer == name for load in others):
            return None
        return blocks[0].element

    def packed(self, kernel: Kernel, site: Site, tile: TileInstruction) -> tuple[Kernel, Site]:
        """The site with constant operands laid out for tile copies: depth inner on the left, outer on the right."""
        sides = ((site.a, site.rows, True), (site.b, site.cols, False))
        fresh: list[Factor] = []
        params = list(kernel.params)
        for factor, outer, inner in sides:
            buffer = self.buffers[factor.load.buffer]
            if buffer.constant is None or suits(
                kernel, site, factor, outer, inner, tile.element, self.ranges
            ):
                fresh.append(factor)
                continue
            array = packed(
                site, factor, outer, inner, tile.element, self.constants[buffer.constant]
            )
            if array is None:
                fresh.append(factor)
                continue
            name = self.constant(array, tile.element)
            fresh.append(repacked(site, factor, outer, inner, tile.element, name))
            params.insert(0, packed_param(name, array, tile.element))
        site = replace(site, a=fresh[0], b=fresh[1])
        return replace(kernel, params=_loaded(params, site)), site

    def constant(self, array: Array, dtype: DType) -> str:
        """A constant buffer with this content."""
        data = ArrayData.of(array)
        name = f"t_{data.digest[:16]}"
        if name not in self.buffers:
            shape = tuple(int(n) for n in array.shape)
            self.buffers[name] = Buffer(name, dtype, shape, Kind.CONSTANT, constant=data.digest)
            self.constants[data.digest] = data.array
        return name


def _written(kernel: Kernel) -> str:
    return ", ".join(outputs_of(kernel))


def _loaded(params: list[Param], site: Site) -> tuple[Param, ...]:
    """The parameters that the contraction or its tail still uses, each once."""
    names = {load.buffer for load in all_loads(site.tail)}
    names |= {site.a.load.buffer, site.b.load.buffer}
    kept = {p.name: p for p in params if p.access is not Access.IN or p.name in names}
    return tuple(kept.values())


def legalize(
    program: Program,
    constants: dict[str, Array],
    ranges: Ranges,
    machine: Machine,
    precision: str,
    avoid: tuple[Avoided, ...] = (),
) -> tuple[Program, dict[str, Array], tuple[Decision, ...]]:
    """The whole program for one generation, its constants, and why."""
    work = Legalizer(ranges, machine, program.by_name(), dict(constants), precision, avoid)
    program, stored = narrow_storage(program, work.rounds_to)
    work.buffers = program.by_name()
    work.decisions.extend(stored)
    steps = work.steps(program.steps)
    done = Program(program.name, tuple(work.buffers.values()), steps)
    return done, work.constants, tuple(work.decisions)
