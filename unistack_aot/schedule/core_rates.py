"""What one core does per second, and how long it waits: a machine's numbers as the work of a core needs them.

Not here: how much work a kernel is (core_work.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unistack_aot.hw.machine import Machine
from unistack_aot.hw.property import Property
from unistack_aot.schedule.panels import RegisterTile, register_tile

# Instructions per cycle of code that is not in vectors: assumed for a current core, not probed.
SINGLE = 3
# Cycles until instructions flow again after a mispredicted branch: assumed for a current core, not probed.
REFILL = 18


@dataclass(frozen=True, slots=True)
class CoreRates:
    """One core: `flops` and vector instructions (`issue`) per second, bytes per second of its caches, seconds waited.

    `single` is by how much scalar code is slower; `latency` that of a multiply-add, `element` of a gathered element,
    `refill` of the pipeline. `entries` are the map entries that each term of work comes from.
    """

    flops: float
    issue: float
    lane_bytes: int
    single: float
    l1: float
    l1_latency: float
    l1_capacity: float
    l2: float
    latency: float
    element: float
    refill: float
    tile: RegisterTile
    entries: Mapping[str, tuple[Property, ...]]


def core_rates(machine: Machine) -> CoreRates:
    """The numbers of one core, read off a machine's map."""
    rate = machine.map.get("fma.f32.one") or machine.rate("fma", "f32")
    flops = rate.value / (1 if rate.name.endswith(".one") else machine.parallel_units)
    issue = flops / (2 * machine.vector_bytes / 4)
    l1, l2 = machine.bandwidth("l1", 1), machine.bandwidth("l2", 1)
    clock, first = machine.map.need("clock"), machine.latency("l1")
    chain = machine.map.get("fma.latency")
    element = machine.map.get("gather.element") or first
    return CoreRates(
        flops,
        issue,
        machine.vector_bytes,
        issue / (SINGLE * clock.value),
        l1.value,
        first.value,
        machine.capacity("l1").value,
        l2.value,
        chain.value if chain else 4 / clock.value,
        element.value,
        REFILL / clock.value,
        register_tile(machine),
        {
            "multiply-add": (rate,),
            "instructions": (rate,),
            "l1": (l1,),
            "chain": (chain or clock,),
            "elements": (element,),
            "l2": (l2,),
            "packing": (rate, l2),
            "starts": (clock, first),
        },
    )
