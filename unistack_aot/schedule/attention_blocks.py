"""Which block of queries and keys realises an attention on a machine with managed near memory.

Not here: recognising it (attention.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2, prod

from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import Dim, Ranges
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.occupancy import resident_groups
from unistack_aot.mcir.nodes import Axis, Kernel
from unistack_aot.schedule.attention import ATTEND, AttentionSite
from unistack_aot.schedule.group_counts import OTHER_REGISTERS
from unistack_aot.schedule.offers import Way
from unistack_aot.schedule.operands import OPEN_EXTENT
from unistack_aot.schedule.stored_runs import STORE_RUNS
from unistack_aot.schedule.tile_instruction import padded_chunks

DEEPEST = 2  # stages of keys and values: one absorbed, one under way
SHARE = 0.5  # of the engine's peak that a block reaches, softmax included: assumed until probed
WARPS_THAT_HIDE = (
    8  # warps of a unit that hide the latency of near memory, as for tiles (block_tiles.py)
)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Depth of the scores and width of the values, rounded up to what a block takes."""

    depth: int
    values: int


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """`queries` rows of one head in a group of `workers`, absorbing `keys` keys at a time.

    `split` is the rows per worker ("fma") or the number of warps (matrix kinds); depth and values are rounded up to
    `depth_step` and `values_step`; `values_most` is where a worker's registers end; `runs` are the neighbouring values
    that a worker has, or gets from the lanes beside it.
    """

    name: str
    kind: str
    queries: int
    keys: int
    split: int
    workers: int
    element: DType
    depth_step: int
    values_step: int
    values_most: int
    scratch: bool
    runs: tuple[int, ...]

    @property
    def held(self) -> int:
        """Scores that one worker holds in registers."""
        return self.queries * self.keys // self.workers

    def near_bytes(self, shape: AttentionShape, depth: int) -> int:
        """Shared bytes with `depth` stages of keys and values."""
        q = self._tile(self.queries, shape.depth)
        staged = self._tile(self.keys, shape.depth) + self._tile(self.keys, shape.values, False)
        weights = self._tile(self.queries, self.keys, False) if self.scratch else 0
        return q + depth * staged + weights

    def _tile(self, rows: int, cols: int, by_rows: bool = True) -> int:
        per_chunk = 16 // self.element.bytes
        by_rows = by_rows or self.element.bytes == 2
        return rows * padded_chunks(cols // per_chunk, by_rows) * 16


def shape_of(depth: Axis, values: Axis, block: AttentionBlock) -> AttentionShape:
    """The padded sizes of an attention under a block."""
    assert isinstance(depth.extent, int) and isinstance(values.extent, int)
    deep = ceil(depth.extent / block.depth_step) * block.depth_step
    wide = ceil(values.extent / block.values_step) * block.values_step
    return AttentionShape(deep, wide)


@dataclass(frozen=True, slots=True)
class AttentionWay:
    """A block, and how many stages of keys and values it keeps."""

    block: AttentionBlock
    stages: int

    @property
    def name(self) -> str:
        """Both in words."""
        return f"{self.block.name}, {self.stages} stages"


def attention_ways(
    site: AttentionSite, blocks: Sequence[AttentionBlock], machine: Machine
) -> tuple[Way[AttentionWay], ...] | No:
    """Blocks with as many stages as fit: first the largest that leaves no unit idle; a reason if none fits."""
    if not isinstance(site.depth.extent, int) or not isinstance(site.values.extent, int):
        return No("the head size is not constant")
    fitting = [
        AttentionWay(block, stages)
        for block in sorted(blocks, key=lambda b: (-b.queries, b.values_most))
        for stages in range(DEEPEST, 0, -1)
        if _fits(site, block, stages, machine)
    ]
    if not fitting:
        return No("no attention block holds heads of this size")
    sizes = Queries(
        prod(_number(axis.extent) for axis in site.outer),
        *(_number(axis.extent) for axis in (site.rows, site.keys)),
    )
    usual = _usual(fitting, sizes, machine)
    because = f"{sizes} on {machine.parallel_units} units ({machine.id})"
    rest = (way for way in fitting if way is not usual)
    return tuple(
        Way(
            way.name,
            predicted(way, shape_of(site.depth, site.values, way.block), sizes, machine),
            (log2(way.block.queries), log2(way.block.held), float(way.stages)),
            way,
            because,
            way.block.name,
        )
        for way in (usual, *rest)
    )


@dataclass(frozen=True, slots=True)
class Queries:
    """Heads of all batches, queries and keys of a head; symbolic ones count as a usual size."""

    heads: int
    rows: int
    keys: int

    def __str__(self) -> str:
        return f"{self.heads} heads of {self.rows} queries"


def _fits(site: AttentionSite, block: AttentionBlock, stages: int, machine: Machine) -> bool:
    shape = shape_of(site.depth, site.values, block)
    near = block.near_bytes(shape, stages)
    return near <= machine.shared_bytes_per_group and shape.values <= block.values_most


def _usual(fitting: Sequence[AttentionWay], sizes: Queries, machine: Machine) -> AttentionWay:
    """The largest block that leaves no unit idle, else the smallest; of equally many queries the first."""
    firsts = list({way.block.queries: way for way in reversed(fitting)}.values())[::-1]
    smallest = firsts[-1]
    return next(
        (
            way
            for way in firsts
            if way.block.queries <= max(sizes.rows, smallest.block.queries)
            and sizes.heads * ceil(sizes.rows / way.block.queries) >= machine.parallel_units
        ),
        smallest,
    )


def predicted(way: AttentionWay, shape: AttentionShape, sizes: Queries, machine: Machine) -> float:
    """Seconds: whole waves of groups, each at the share of its unit that resident groups reach together.

    A group computes at the engine's rate, or takes the keys and values of its head from the last cache; with one stage
    it waits for each block of them. The share of the peak is assumed: it orders the ways of one kernel only.
    """
    block = way.block
    engine = ("fma", "f32") if block.kind == "fma" else ("mma", block.kind)
    found = machine.find_rate(*engine)
    if found is None:
        return inf
    groups = sizes.heads * ceil(sizes.rows / block.queries)
    steps = ceil(sizes.keys / block.keys)
    near = block.near_bytes(shape, way.stages)
    registers = block.held + block.queries * shape.values // block.workers + OTHER_REGISTERS
    registers = min(registers, machine.registers_per_thread)
    resident = max(1, resident_groups(machine, block.workers, registers, near).groups)
    busiest = ceil(groups / machine.parallel_units)
    warps = min(busiest, resident) * block.workers / machine.lanes
    hiding = min(1.0, (warps / WARPS_THAT_HIDE) ** 0.5)
    rate = found.value / machine.parallel_units * SHARE * hiding
    wide = shape.depth + shape.values
    flops = 2.0 * block.queries * steps * block.keys * wide
    streamed = float(steps * block.keys * wide * block.element.bytes)
    from_cache = streamed * machine.parallel_units / machine.bandwidth("l2").value
    waits = steps * machine.latency("l2").value / min(busiest, resident) if way.stages == 1 else 0.0
    each = max(flops / rate, from_cache) + waits
    return machine.launch_cost(graph=True).value + 2 * machine.latency("far").value + busiest * each


def attended(kernel: Kernel, site: AttentionSite, way: AttentionWay, ranges: Ranges) -> Kernel:
    """The attention as blocks of queries."""
    block = way.block
    found = ATTEND.sure(kernel, site, block.queries, block.keys, f"{block.name}.{way.stages}")
    return replace(STORE_RUNS.sure(found, block.runs, ranges), group=block.workers)


def _number(extent: Dim) -> int:
    return extent if isinstance(extent, int) else OPEN_EXTENT
