"""Turns every launch into what the host runs: packed contractions, blocked loops, roles. Not here: printing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from math import log2
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unistack_aot.aicf.op import ArrayData
from unistack_aot.base.dtypes import DType, f32
from unistack_aot.base.symbolic import Dim, Ranges, linear_split, simplify, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.roofline import Prediction
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.canonical import canonical, closed, opened
from unistack_aot.mcir.layout import PLAIN, Layout
from unistack_aot.mcir.nodes import Kernel, Loop, Param, Role
from unistack_aot.mcir.program import Buffer, HostIf, HostLoop, Kind, Launch, Program, Step
from unistack_aot.mcir.transform import rename_buffers
from unistack_aot.mcir.winograd import Form
from unistack_aot.schedule.attention import ATTEND, AttentionSite, find_attention
from unistack_aot.schedule.candidates import (
    ANOTHER_ALGORITHM,
    apart,
    block_ways,
    choose,
    neighbours,
    placed,
)
from unistack_aot.schedule.choices import Choice, Pick, Picks, content_key
from unistack_aot.schedule.contraction import Site, find_site
from unistack_aot.schedule.cost import predict_kernel
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.few_wide import WideWorkers, assign_roles
from unistack_aot.schedule.laying_out import LAY_OUT
from unistack_aot.schedule.narrow_floats import WIDEN
from unistack_aot.schedule.operand_copies import COPY_OPERAND, operands
from unistack_aot.schedule.operator import or_same
from unistack_aot.schedule.panel_blocks import (
    choose_blocks,
    described,
    extents_of,
    usual_size,
)
from unistack_aot.schedule.panel_packing import PACK, pack_constant, packed_shape
from unistack_aot.schedule.panel_tiles import TILE_PANELS
from unistack_aot.schedule.panels import Blocks, Depth, PanelInstruction, depth_of
from unistack_aot.schedule.query_blocks import query_blocks
from unistack_aot.schedule.recurrences import step_weights
from unistack_aot.schedule.winograd import (
    TILE_WINOGRAD,
    transform_constant,
    winograd_form,
    winograd_saves,
)
from unistack_aot.targets.cpu.guards import without_covered_guards
from unistack_aot.targets.cpu.instructions import instruction_for
from unistack_aot.targets.target import Request, Scheduled

Array = NDArray[Any]
Way = TypeVar("Way")


@dataclass
class Legalizer:
    """One program on its way to the host: buffers and constants grow by packed operands."""

    ranges: Ranges
    machine: Machine
    buffers: dict[str, Buffer]
    constants: dict[str, Array]
    fast: bool
    known: dict[tuple[Kernel, WideWorkers], Kernel] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    choices: dict[str, Choice] = field(default_factory=dict)
    picks: Picks = field(default_factory=dict[str, Pick])
    whole: bool = False
    precision: str = "f32"
    narrow: dict[str, DType] = field(default_factory=dict[str, DType])
    predicted: dict[tuple[str, str], Prediction] = field(default_factory=dict)

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Every step of a block; packing launches precede their users."""
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
        """The launch with roles, preceded by the packing it needs."""
        launch = without_covered_guards(launch, self.ranges)
        kernel = opened(launch)
        kernel = or_same(WIDEN(kernel), kernel)
        kernel, copying = self.readable(launch, kernel)
        site = find_site(kernel)
        packing: list[Launch] = []
        workers = WideWorkers()
        heads = find_attention(kernel)
        if isinstance(heads, AttentionSite) and attention_fits(kernel, heads, self.ranges):
            kernel = self.attention(launch, kernel, heads)
        elif isinstance(site, Site) and not site.cols:
            kernel = self.depthwise(kernel, site)
        elif isinstance(site, Site):
            tiles = self.contraction(launch, kernel, site)
            if not isinstance(tiles, No):
                packing, kernel = tiles
        else:
            kernel = self.recurrence(kernel)
            workers = self.sharing(launch, kernel)
        fresh = closed(kernel, launch)
        before = (*copying, *packing)
        return [*(self.roles(p, WideWorkers()) for p in before), self.roles(fresh, workers)]

    def readable(self, launch: Launch, kernel: Kernel) -> tuple[Kernel, list[Launch]]:
        """The kernel, and copies of operands first where tiles cannot read these as they lie."""
        if not operands(kernel) or self.fits(kernel):
            return kernel, []
        changed, copying = kernel, list[Kernel]()
        for load in operands(kernel):
            found = COPY_OPERAND(
                changed, load, f"{load.buffer}_rows{len(self.buffers) + len(copying)}"
            )
            if isinstance(found, No):
                continue
            copying.append(found[0])
            changed = found[1]
            if self.fits(changed):
                return changed, [self.copying(copy, launch) for copy in copying]
        return kernel, []

    def copying(self, kernel: Kernel, launch: Launch) -> Launch:
        """The launch that copies an operand into a fresh buffer."""
        ((source,), (held,)) = kernel.inputs, kernel.outputs
        self.buffers[held.name] = Buffer(held.name, held.dtype, held.shape)
        if source.name in self.narrow:
            self.narrow[held.name] = self.narrow[source.name]
        because = f"tiles read whole rows; those of {source.name} lie apart"
        self.decisions.append(Decision("rows", held.name, f"copy of {source.name}", because))
        return closed(kernel, Launch(kernel, (), launch.origins, "rows"))

    def fits(self, kernel: Kernel) -> Yes | No:
        """Whether a tile instruction takes the product or attention that a kernel is."""
        site, heads = find_site(kernel), find_attention(kernel)
        if isinstance(heads, AttentionSite):
            return attention_fits(kernel, heads, self.ranges)
        if isinstance(site, Site) and site.cols:
            via, _ = self.instruction(site)
            return PACK.check(kernel, self.oriented(kernel, site), "packed", self.ranges, via)
        return No("it multiplies nothing")

    def roles(self, launch: Launch, workers: WideWorkers) -> Launch:
        """Loop roles of one launch; equal kernels are decided once."""
        key = launch.kernel, workers
        if key not in self.known:
            self.known[key] = canonical(assign_roles(launch.kernel, self.ranges, workers))
        return replace(launch, kernel=self.known[key])

    def contraction(
        self, launch: Launch, kernel: Kernel, site: Site
    ) -> tuple[list[Launch], Kernel] | No:
        """Packed form of a contraction with its packing launch, if the tile instruction fits."""
        site = self.oriented(kernel, site)
        via, because = self.instruction(site)
        refusal = PACK.check(kernel, site, "packed", self.ranges, via)
        if isinstance(refusal, No):
            return refusal
        subject = ", ".join(launch.origins[:2]) or launch.label
        if because:
            self.decisions.append(Decision("instruction", subject, via.name, because))
        a, b = kernel.param(site.a.load.buffer), kernel.param(site.b.load.buffer)
        depth = depth_of(site, a.layout, a.shape, self.ranges)
        assert isinstance(depth, Depth)
        name = self.packed(site, depth, a.layout, b, via)
        constant = name is not None
        name = name or f"p{len(self.buffers)}"
        parts = PACK.sure(kernel, site, name, self.ranges, via)
        packing = [] if constant else [self.run_time_packing(parts.packing, launch)]
        extents = extents_of(site, depth, self.ranges, via)
        direct = block_ways(extents, choose_blocks(extents, self.machine), self.machine)
        near = [*neighbours(direct), next(iter(direct))]
        ways: dict[str, Blocks | Form] = {**direct}
        places = {name: placed(blocks, extents) for name, blocks in direct.items()}
        words = described(extents, self.machine)
        form = winograd_form(site, depth, a.layout.block)
        if not packing and self.fast and isinstance(form, Form) and not via.gathered:
            ways = {form.name: form, **ways}
            places[form.name] = ANOTHER_ALGORITHM
            words = f"{words}; {winograd_saves(site, form)}"

        def made(blocks: Blocks | Form, operand: str) -> Kernel:
            if isinstance(blocks, Form):
                return TILE_WINOGRAD.sure(kernel, site, depth, blocks, operand, self.machine)
            return TILE_PANELS.sure(parts.kernel, parts.site, blocks, self.ranges, via)

        kind = "blocks" if len(ways) == len(direct) else "algorithm"
        blocks = self.chosen(
            kind, subject, launch, ways, lambda way: made(way, "packed"), near, words, places
        )
        return packing, made(
            blocks, self.transformed(name, blocks) if isinstance(blocks, Form) else name
        )

    def instruction(self, site: Site) -> tuple[PanelInstruction, str]:
        """The tile instruction of a product; why, where a narrower one than f32's may be taken."""
        a, b = (self.narrow.get(factor.load.buffer) for factor in (site.a, site.b))
        return instruction_for(site.acc.dtype, (a, b), self.precision, self.machine)

    def attention(self, launch: Launch, kernel: Kernel, site: AttentionSite) -> Kernel:
        """The attention as blocks of queries that share one pass over the keys."""

        def made(sizes: tuple[int, int]) -> Kernel:
            return ATTEND.sure(kernel, site, *sizes, "attention.f32")

        ways = {
            f"{rows} queries and {keys} keys at a time": (rows, keys)
            for rows, keys in query_blocks(site, self.machine, self.ranges)
        }
        usual = next(iter(ways.values()))
        near = [
            name for name, sizes in ways.items() if sizes[0] == usual[0] or sizes[1] == usual[1]
        ]
        places = {name: (log2(rows), log2(keys)) for name, (rows, keys) in ways.items()}
        words = "softmax(q k) v is a stream over keys; scores stay near"
        subject = ", ".join(launch.writes())
        return made(self.chosen("attention", subject, launch, ways, made, near, words, places))

    def chosen(
        self,
        kind: str,
        subject: str,
        launch: Launch,
        ways: dict[str, Way],
        made: Callable[[Way], Kernel],
        near: Collection[str],
        because: str,
        places: Mapping[str, tuple[float, ...]] | None = None,
    ) -> Way:
        """The way to take among those of a launch; what was decided and could be measured is noted.

        `places` says how far ways are from each other (none: no two are alike).
        """
        kinds = (self.buffers[name].kind.name for name in launch.args)
        key = content_key(launch.kernel, *kinds, str(sorted(self.ranges.items())))

        def cost(name: str) -> Prediction:
            if (key, name) not in self.predicted:
                self.predicted[key, name] = self.cost(made(ways[name]))
            return self.predicted[key, name]

        near = tuple(ways) if self.whole else near
        writes, machine, picks = launch.writes(), self.machine, self.picks
        way, decision, choice = choose(
            kind, subject, writes, key, ways, cost, machine, picks, near, because
        )
        known = self.choices.get(key, replace(choice, writes=()))
        places = places or apart(ways)
        self.choices[key] = replace(choice, writes=(*known.writes, *choice.writes), places=places)
        self.decisions.append(decision)
        return way

    def cost(self, kernel: Kernel) -> Prediction:
        """The predicted time at the usual sizes of symbols."""
        tops = {name: top for name, (_, top) in self.ranges.items()}
        sizes = {n: usual_size(t if isinstance(t, int) else None) for n, t in tops.items()}
        return predict_kernel(kernel, self.machine, sizes)

    def depthwise(self, kernel: Kernel, site: Site) -> Kernel:
        """Weights of a depthwise convolution in the activations' channel blocks, so that lanes read neighbours."""
        a, b = kernel.param(site.a.load.buffer), kernel.param(site.b.load.buffer)
        buffer = self.buffers[b.name]
        block = a.layout.block
        if block is None or buffer.constant is None or buffer.kind is not Kind.CONSTANT:
            return kernel
        shared = [k for k, e in enumerate(site.b.load.index) if e == site.a.load.index[block[0]]]
        if len(shared) != 1:
            return kernel
        return self.laid(kernel, b.name, Layout((shared[0], block[1])))

    def recurrence(self, kernel: Kernel) -> Kernel:
        """Constant weights that every step reads, in blocks of units, so that lanes read neighbours."""
        for name, layout in step_weights(kernel).items():
            buffer = self.buffers[name]
            if buffer.kind is Kind.CONSTANT and buffer.constant and buffer.dtype is f32:
                kernel = self.laid(kernel, name, layout)
        return kernel

    def sharing(self, launch: Launch, kernel: Kernel) -> WideWorkers:
        """Whether cores share every step of an ordered loop and meet after it, or one of them runs the loop."""
        if not any(isinstance(stmt, Loop) and stmt.role is Role.SEQ for stmt in kernel.body):
            return WideWorkers()

        def made(workers: WideWorkers) -> Kernel:
            return assign_roles(kernel, self.ranges, workers)

        ways = {
            "steps on one core": WideWorkers(),
            "steps shared by cores": WideWorkers(steps=True),
        }
        alone, shared = (made(workers) for workers in ways.values())
        if alone == shared:
            return WideWorkers()
        if self.cost(shared).seconds < self.cost(alone).seconds:
            ways = dict(reversed(ways.items()))
        subject = ", ".join(launch.origins[:2]) or launch.label
        words = "a step needs the one before it: cores meet after each"
        return self.chosen("steps", subject, launch, ways, made, tuple(ways), words)

    def laid(self, kernel: Kernel, operand: str, layout: Layout) -> Kernel:
        """The kernel with a constant operand in this layout."""
        param, digest = kernel.param(operand), self.buffers[operand].constant
        assert digest is not None
        laid = laid_out(self.constants[digest], layout)
        name = self.constant(laid, param.shape, layout, param.dtype)
        kernel = LAY_OUT.sure(kernel, {operand: layout})
        params = tuple(replace(p, name=name) if p.name == operand else p for p in kernel.params)
        return replace(kernel, params=params, body=rename_buffers(kernel.body, {operand: name}))

    def oriented(self, kernel: Kernel, site: Site) -> Site:
        """Constants, or else the operand that holds the result's last axis, go to the right (packed) side.

        A copy that is only considered has no buffer yet; it is no constant.
        """
        known = (self.buffers.get(f.load.buffer) for f in (site.a, site.b))
        left, right = (held is not None and held.kind is Kind.CONSTANT for held in known)
        if left and not right:
            return site.swapped()
        return site

    def packed(
        self, site: Site, depth: Depth, layout: Layout, b: Param, via: PanelInstruction
    ) -> str | None:
        """The buffer of a constant operand packed at compile time; None if it is no constant."""
        buffer = self.buffers[b.name]
        if buffer.kind is not Kind.CONSTANT or buffer.constant is None:
            return None
        array = pack_constant(site, depth, layout, self.constants[buffer.constant], via)
        if array is None:
            return None
        shape = packed_shape(site, depth, via)
        return self.constant(array, shape, via.layout(len(shape)), via.dtype)

    def transformed(self, packed: str, form: Form) -> str:
        """The buffer of packed weights transformed for a form of 3x3 convolution."""
        digest = self.buffers[packed].constant
        assert digest is not None
        return self.constant(transform_constant(self.constants[digest], form))

    def constant(
        self,
        array: Array,
        shape: tuple[Dim, ...] | None = None,
        layout: Layout = PLAIN,
        dtype: DType = f32,
    ) -> str:
        """A constant buffer with this physical content; `shape` is the logical one where they differ."""
        data = ArrayData.of(array)
        name = f"k_{data.digest[:16]}"
        if name not in self.buffers:
            logical = tuple(int(n) for n in array.shape) if shape is None else shape
            self.buffers[name] = Buffer(
                name, dtype, logical, Kind.CONSTANT, layout, constant=data.digest
            )
            self.constants[data.digest] = data.array
        return name

    def run_time_packing(self, kernel: Kernel, launch: Launch) -> Launch:
        """The launch that packs an operand into a fresh buffer."""
        (held,) = kernel.outputs
        self.buffers[held.name] = Buffer(held.name, held.dtype, held.shape, layout=held.layout)
        return closed(kernel, Launch(kernel, (), launch.origins, "pack"))


def attention_fits(kernel: Kernel, site: AttentionSite, ranges: Ranges) -> Yes | No:
    """The tile instruction takes f32 rows whose depth and values are contiguous."""
    inside = dict(ranges)
    for axis in (*site.outer, site.rows, site.keys, site.depth, site.values):
        inside[axis.var] = (0, axis.extent - 1)
    views = [(site.q, site.depth), (site.k, site.depth), (site.v, site.values)]
    for load, unit in views:
        param = kernel.param(load.buffer)
        if param.dtype is not f32 or any(isinstance(e, Scalar) for e in load.index):
            return No(f"{load.buffer} is not a plain f32 operand")
        index = tuple(e for e in load.index if not isinstance(e, Scalar))
        offset = simplify(param.layout.offset(param.shape, index), inside)
        for axis in (site.rows, site.keys, unit):
            parts = linear_split(offset, axis.var)
            if parts is None or symbols(parts[0]) & inside.keys() - ranges.keys():
                return No(f"{load.buffer} is not linear in {axis.var}")
            if axis is unit and parts[0] != 1:
                return No(f"{load.buffer} is not contiguous")
    return YES


def laid_out(array: Array, layout: Layout) -> Array:
    """An array in the memory order of a layout, padding zero."""
    halo = layout.halo or ((0, 0),) * array.ndim
    array = np.pad(array, halo)
    if layout.block is None:
        return np.ascontiguousarray(array)
    axis, size = layout.block
    extra = [(0, -array.shape[k] % size if k == axis else 0) for k in range(array.ndim)]
    padded = np.pad(array, extra)
    shape = (*padded.shape[:axis], -1, size, *padded.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(padded.reshape(shape), axis + 1, -1))


def legalize(
    program: Program,
    constants: dict[str, Array],
    request: Request,
    machine: Machine,
    narrow: Mapping[str, DType],
) -> Scheduled:
    """The whole program for the host, its constants including packed ones, and what was decided.

    `narrow`: the types to which the values of some f32 buffers are rounded.
    """
    work = Legalizer(
        request.ranges,
        machine,
        program.by_name(),
        constants,
        request.convolution == "fast",
        picks=request.picks,
        whole=request.whole,
        precision=request.precision,
        narrow=dict(narrow),
    )
    steps = work.steps(program.steps)
    fresh = Program(program.name, tuple(work.buffers.values()), steps)
    return Scheduled(fresh, work.constants, tuple(work.decisions), tuple(work.choices.values()))
