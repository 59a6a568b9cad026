"""How many groups fit on a unit at once, and what stops one more. Not here: whether more is faster
(roofline.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from unistack_aot.hw.machine import Machine


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`groups` resident on one unit; `limit` names the map entry that stops one more; `share` of
    resident threads used.
    """

    groups: int
    limit: str
    share: float


def resident_groups(machine: Machine, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Return how many groups of `threads` threads with these needs a unit holds (0 groups: it
    cannot run at all).

    Rule of the CUDA occupancy calculator: registers are granted to a warp in granules, shared
    memory adds a reserve. A CPU core runs one group.
    """
    if not machine.is_wide:
        return Occupancy(1, "units.count", 1.0)
    warps = ceil(threads / machine.lanes)
    granule = _entry(machine, "units.registers.granule", 1)
    per_warp = ceil(max(registers, 1) * machine.lanes / granule) * granule
    shared = shared_bytes + _entry(machine, "shared.reserved.group", 0) if shared_bytes else 0
    bounds = {
        "units.groups": _entry(machine, "units.groups", 1),
        "units.threads": machine.resident_threads // (warps * machine.lanes),
        "units.registers": machine.registers // (per_warp * warps),
    }
    if shared:
        bounds["shared.capacity"] = machine.shared_bytes_per_unit // shared
    if threads > machine.max_threads:
        bounds["group.threads"] = 0
    if registers > machine.registers_per_thread:
        bounds["units.registers.thread"] = 0
    if shared_bytes > machine.shared_bytes_per_group:
        bounds["shared.capacity.group"] = 0
    limit = min(bounds, key=lambda name: (bounds[name], name))
    groups = bounds[limit]
    return Occupancy(groups, limit, groups * warps * machine.lanes / machine.resident_threads)


def _entry(machine: Machine, name: str, otherwise: int) -> int:
    found = machine.map.get(name)
    return otherwise if found is None else int(found.value)
