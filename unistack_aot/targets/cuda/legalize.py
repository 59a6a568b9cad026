"""Turns every launch into what a GPU runs: one nest per kernel, 32-bit arithmetic for narrow floats, roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

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
from unistack_aot.schedule.attention_blocks import (
    attended,
    attention_ways,
)
from unistack_aot.schedule.block_tiles import (
    block_tiled,
    hoisted,
    oriented,
    outputs_of,
    runs_inside,
    tile_ways,
)
from unistack_aot.schedule.channels_last import (
    TURN_CHANNELS,
    choose_channels_last,
    turned_shape,
)
from unistack_aot.schedule.choices import Choice, Pick, Picks, content_key
from unistack_aot.schedule.contraction import Factor, Site, find_site
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.independent import MOVE_OUTSIDE
from unistack_aot.schedule.last_writer import LAST_WRITER
from unistack_aot.schedule.many_narrow import assign_roles
from unistack_aot.schedule.narrow_floats import WIDEN
from unistack_aot.schedule.narrow_storage import narrow_storage
from unistack_aot.schedule.offers import Offer, Way, on_trial, take
from unistack_aot.schedule.operands import operand
from unistack_aot.schedule.operator import or_same
from unistack_aot.schedule.separation import SEPARATE
from unistack_aot.schedule.split_depth import SPLIT_REDUCE, workspace_shape
from unistack_aot.schedule.steps import LAUNCH_STEPS, step_ways
from unistack_aot.schedule.stored_runs import STORE_RUNS
from unistack_aot.schedule.tile_constants import packed, packed_param, repacked, suits
from unistack_aot.schedule.tile_instruction import TileInstruction
from unistack_aot.schedule.transposes import SIDE, TURN
from unistack_aot.targets.cuda.instructions import attention_for, instructions_for
from unistack_aot.targets.cuda.spills import (
    CROWDED,
    LOOPS,
    LoopWay,
    Realised,
    avoided,
    lighter,
    loop_way,
)
from unistack_aot.targets.target import Avoided, Scheduled

Array = NDArray[Any]
T = TypeVar("T")


@dataclass
class Legalizer:
    """One program on its way to a GPU; equal kernels are decided once."""

    ranges: Ranges
    machine: Machine
    buffers: dict[str, Buffer]
    constants: dict[str, Array]
    precision: str
    avoid: tuple[Avoided, ...] = ()
    picks: Picks = field(default_factory=dict[str, Pick])
    decisions: list[Decision] = field(default_factory=list)
    choices: dict[str, Choice] = field(default_factory=dict)
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
        key = self.key(closed(kernel, launch))
        spilled = avoided(self.avoid, launch.origins)
        if CROWDED in spilled:
            subject, chosen = ", ".join(outputs_of(kernel)), "all registers that a group can have"
            self.decisions.append(Decision("spill", subject, chosen, spilled[CROWDED]))
        found = self.attention(kernel, key, spilled)
        if isinstance(found, No):
            found = self.contraction(kernel, key, spilled)
        if isinstance(found, No):
            return [self.roles(closed(kernel, launch))]
        parts = [closed(each, launch) for each in found]
        self.written(key, parts)
        return [each if each.kernel.group else self.roles(each) for each in parts]

    def key(self, launch: Launch) -> str:
        """A name for a kernel before any choice, by all that its ways depend on."""
        kinds = (self.buffers[name].kind.name for name in launch.args)
        sizes = str(sorted(self.ranges.items()))
        return content_key(launch.kernel, *kinds, sizes, self.precision)

    def take(self, offer: Offer[T]) -> tuple[T, str]:
        """The way that a measurement chose, or the usual one, and its name; the record and the choice are noted."""
        pick = self.picks.get(offer.key)
        way, decision, choice = take(offer, pick)
        known = self.choices.get(offer.key)
        self.choices[offer.key] = replace(choice, writes=() if known is None else known.writes)
        self.decisions.append(decision)
        return way, decision.chosen

    def written(self, key: str, launches: Sequence[Launch]) -> None:
        """Note that these launches are what one place of the kernel `key` has become."""
        choice = self.choices[key]
        names = tuple(dict.fromkeys(name for each in launches for name in each.writes()))
        self.choices[key] = replace(choice, writes=(*choice.writes, names))

    def instead(
        self, subject: str, chosen: str, offered: Sequence[Realised], ways: Mapping[str, str]
    ) -> None:
        """Record that a choice was made because those before it spilled."""
        names = {way.name for way in offered}
        reasons = [because for way, because in ways.items() if way in names]
        if reasons:
            self.decisions.append(Decision("spill", subject, chosen, "; ".join(reasons)))

    def roles(self, launch: Launch) -> Launch:
        """A launch of one nest with roles for its loops; equal kernels are decided once."""
        way = loop_way(self.avoid, launch.origins)
        known, key = (launch.kernel, way), self.key(launch)
        if known not in self.decided:
            kernel = or_same(WIDEN(launch.kernel), launch.kernel)
            subject = ", ".join(launch.writes())
            found = self.launched_by_step(kernel, subject, key, way)
            if found is None:
                found, decision = self.loops(kernel, way)
                self.decisions.append(replace(decision, subject=subject))
            self.instead(subject, way.name, LOOPS, avoided(self.avoid, launch.origins))
            self.decided[known] = canonical(found)
        done = replace(launch, kernel=self.decided[known])
        if key in self.choices:
            self.written(key, [done])
        return done

    def launched_by_step(
        self, kernel: Kernel, subject: str, key: str, way: LoopWay
    ) -> Kernel | None:
        """An ordered loop whose steps are launches of their own, if they may be and that is the way to take."""
        ways = step_ways(kernel, self.ranges, self.machine)
        if isinstance(ways, No) or not self.take(Offer("steps", subject, key, ways))[0]:
            return None
        vector = min(self.machine.vector_bytes, way.most.vector_bytes)
        return LAUNCH_STEPS.sure(kernel, self.ranges, self.machine.lanes, vector)

    def loops(self, kernel: Kernel, way: LoopWay) -> tuple[Kernel, Decision]:
        """A near tile that turns a matrix, or workers for elements and rows; and why."""
        turned = TURN(kernel, self.ranges)
        if isinstance(turned, No) or way is not LOOPS[0]:
            return assign_roles(kernel, self.ranges, self.machine, way.most)
        because = "load and store are contiguous along different axes"
        near = f"near tile {SIDE} x {SIDE}"
        return turned, Decision("map", turned.outputs[0].name, near, because)

    def attention(
        self, kernel: Kernel, key: str, spilled: Mapping[str, str]
    ) -> tuple[Kernel, ...] | No:
        """An attention over blocks of queries, if some block fits and did not spill."""
        site = find_attention(kernel)
        if isinstance(site, No):
            return site
        blocks = attention_for(site.q.dtype, self.precision, self.machine)
        subject = ", ".join(outputs_of(kernel))

        offered = partial(attention_ways, site, machine=self.machine)
        way = self.realised("attention", subject, key, blocks, offered, spilled)
        return way if isinstance(way, No) else (attended(kernel, site, way, self.ranges),)

    def realised(
        self,
        kind: str,
        subject: str,
        key: str,
        offered: Sequence[Realised],
        ways_of: Callable[[Sequence[Realised]], tuple[Way[T], ...] | No],
        spilled: Mapping[str, str],
    ) -> T | No:
        """The way to take among those of what is offered and did not spill; the refusal if none is left.

        What spilled on trial tells nothing of the usual way; what spilled otherwise, that less must be held.
        """
        every, pick = ways_of(offered), self.picks.get(key)
        if isinstance(every, No):
            return every
        tried = on_trial(every, pick)
        kept = lighter(offered, spilled.keys() - {tried})
        ways = ways_of([each for each in kept if each.name not in spilled])
        if isinstance(ways, No):
            self.instead(subject, "loops over far memory", offered, spilled)
            return ways
        way, name = self.take(Offer(kind, subject, key, ways))
        if pick is not None and tried in spilled:
            choice = self.choices[key]
            self.choices[key] = replace(choice, refused={pick.way: spilled[tried]})
        self.instead(subject, name, offered, spilled)
        return way

    def contraction(
        self, kernel: Kernel, key: str, spilled: Mapping[str, str]
    ) -> tuple[Kernel, ...] | No:
        """A contraction over near tiles, if some tile instruction pays, between what goes before and after it."""
        site = self.site_of(kernel)
        if isinstance(site, No):
            return site
        operands = (site.a.load.dtype, site.b.load.dtype)
        tiles = instructions_for(operands, site.acc.dtype, self.precision, self.machine)
        subject = ", ".join(outputs_of(kernel))

        offered = partial(tile_ways, kernel, site, machine=self.machine, ranges=self.ranges)
        way = self.realised("tile", subject, key, tiles, offered, spilled)
        if isinstance(way, No):
            return way
        tile, parts = way.tile, way.parts
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
        found = tile_ways(kernel, site, tiles, self.machine, self.ranges)
        return None if isinstance(found, No) else found[0].made.tile.element

    def attends_in(self, kernel: Kernel, site: AttentionSite, name: str) -> DType | None:
        """The element type of queries, keys and values of the block that is chosen for an attention."""
        others = (*loads(site.score), *all_loads(site.tail))
        blocks = attention_for(site.q.dtype, self.precision, self.machine)
        found = attention_ways(site, blocks, self.machine)
        if isinstance(found, No) or any(load.buffer == name for load in others):
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
    picks: Picks = MappingProxyType({}),
) -> Scheduled:
    """The whole program for one generation, its constants, why, and what could be measured."""
    work = Legalizer(ranges, machine, program.by_name(), dict(constants), precision, avoid, picks)
    program, stored = narrow_storage(program, work.rounds_to)
    work.buffers = program.by_name()
    work.decisions.extend(stored)
    steps = work.steps(program.steps)
    done = Program(program.name, tuple(work.buffers.values()), steps)
    return Scheduled(done, work.constants, tuple(work.decisions), tuple(work.choices.values()))
