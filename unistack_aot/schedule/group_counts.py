"""What a launch of groups of narrow workers does: groups, bytes by level, operations by engine.

Not here: how long that takes (hw/roofline.py).
"""

from __future__ import annotations

from math import prod

from unistack_aot.base.symbolic import Dim, evaluate, symbols
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.roofline import Counts
from unistack_aot.mcir.counts import count, whole
from unistack_aot.mcir.nodes import (
    Attend,
    Contract,
    Kernel,
    Loop,
    Role,
    Space,
    Stream,
    Sync,
    Tile,
)
from unistack_aot.mcir.transform import all_loads, bound_vars, walk

OTHER_REGISTERS = 40  # addresses and counters of a worker, beside its accumulators


def group_counts(kernel: Kernel, machine: Machine) -> Counts:
    """The counts of a kernel whose dimensions are numbers; a last, shorter tile counts as a whole one."""
    bound = frozenset(bound_vars(kernel.body))
    statements = list(walk(kernel.body))
    groups = prod(
        max(1, -(-_size(s.extent, bound) // s.step))
        for s in statements
        if isinstance(s, Loop) and s.role is Role.GRID
    )
    counted = count(kernel)
    far = float(evaluate(counted.far_bytes, {}))
    threads = max(1, kernel.group)
    tiles = [s for s in statements if isinstance(s, Tile)]
    near = sum(_bytes(t) for t in tiles if t.space is Space.NEAR)
    held = sum(_elements(t) for t in tiles if t.space is Space.REG)
    streams = [s for s in statements if isinstance(s, Stream)]
    depth = max((s.depth for s in streams), default=1)
    steps = sum(-(-_size(s.extent, bound) // s.step) for s in streams)
    width = sum(load.dtype.bytes for load in all_loads(kernel.body)) * _width(kernel)
    engine = engine_of(kernel)
    if machine.find_rate(*engine) is None:  # maps state no rates of i32 and f64 multiply-adds
        engine = ("fma", "f32")
    flops = {engine: float(evaluate(counted.flops, {}))}
    moved = {"far": far}
    if near and steps:  # operands pass the last cache once per tile that reads them
        moved["l2"] = max(far, float(groups * steps * near))
    return Counts(
        moved,
        flops,
        groups,
        threads,
        registers=min(machine.registers_per_thread, held // threads + OTHER_REGISTERS),
        shared_bytes=near * depth,
        bytes_in_flight=near * max(1, depth - 1) / threads if near else float(width),
        barriers=sum(1 for s in statements if isinstance(s, Sync)) * max(1, steps) + 1,
    )


def engine_of(kernel: Kernel) -> tuple[str, str]:
    """Engine and operand type of a kernel's tile instruction ("mma.bf16.128x64x32.2x2").

    Plain code counts as multiply-adds.
    """
    for stmt in walk(kernel.body):
        if isinstance(stmt, Contract | Attend):
            engine, kind = stmt.via.split(".")[:2]
            if engine == "attention":
                return ("fma", "f32") if kind in ("fma", "f32") else ("mma", kind)
            return engine, kind
    return "fma", "f32"


def _size(extent: Dim, bound: frozenset[str]) -> int:
    full = whole(extent, bound)
    return 1 if symbols(full) else evaluate(full, {})


def _elements(tile: Tile) -> int:
    return prod(evaluate(e, {}) for e in tile.shape)


def _bytes(tile: Tile) -> int:
    return _elements(tile) * tile.dtype.bytes


def _width(kernel: Kernel) -> int:
    """Elements that one worker loads at a time."""
    vectors = [s.extent for s in walk(kernel.body) if isinstance(s, Loop) and s.role is Role.VECTOR]
    return max((e for e in vectors if isinstance(e, int)), default=1)
