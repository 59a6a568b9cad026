"""Which block of queries and keys realises an attention on a machine with managed near memory.

Not here: recognising it (attention.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import Dim, Ranges
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine
from unistack_aot.mcir.nodes import Axis, Kernel
from unistack_aot.schedule.attention import ATTEND, AttentionSite
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.operands import OPEN_EXTENT
from unistack_aot.schedule.stored_runs import STORE_RUNS
from unistack_aot.schedule.tile_instruction import padded_chunks

DEEPEST = 2  # stages of keys and values: one absorbed, one under way


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


def choose_attention(
    kernel: Kernel,
    site: AttentionSite,
    blocks: Sequence[AttentionBlock],
    machine: Machine,
    ranges: Ranges,
) -> tuple[Kernel, Decision] | No:
    """The attention as blocks of queries, in the largest block that leaves no unit idle; a reason if none fits."""
    if not isinstance(site.depth.extent, int) or not isinstance(site.values.extent, int):
        return No("the head size is not constant")
    fitting: list[tuple[AttentionBlock, int]] = []
    for block in sorted(blocks, key=lambda b: (-b.queries, b.values_most)):
        shape = shape_of(site.depth, site.values, block)
        stages = [
            depth
            for depth in range(DEEPEST, 0, -1)
            if block.near_bytes(shape, depth) <= machine.shared_bytes_per_group
        ]
        taken = bool(fitting) and fitting[-1][0].queries == block.queries
        if stages and shape.values <= block.values_most and not taken:
            fitting.append((block, stages[0]))
    if not fitting:
        return No("no attention block holds heads of this size")
    rows = _number(site.rows.extent)
    heads = 1
    for axis in site.outer:
        heads *= _number(axis.extent)
    block, depth = next(
        (
            (b, d)
            for b, d in fitting
            if b.queries <= max(rows, fitting[-1][0].queries)
            and heads * ceil(rows / b.queries) >= machine.parallel_units
        ),
        fitting[-1],
    )
    found = ATTEND.sure(kernel, site, block.queries, block.keys, f"{block.name}.{depth}")
    found = STORE_RUNS.sure(found, block.runs, ranges)
    because = f"{heads} heads of {rows} queries on {machine.parallel_units} units ({machine.id})"
    tried = tuple(b.name for b, _ in fitting if b is not block)
    subject = ", ".join(p.name for p in kernel.outputs)
    decision = Decision("attention", subject, f"{block.name}, {depth} stages", because, tried)
    return replace(found, group=block.workers), decision


def _number(extent: Dim) -> int:
    return extent if isinstance(extent, int) else OPEN_EXTENT
