"""Do the numbers of one property map agree with each other? Not here: whether each number is
plausible alone (propmap.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from unistack_aot.base.measured import quantity
from unistack_aot.hw.property import Property, derived
from unistack_aot.hw.propmap import PropertyMap

RATE_TOLERANCE = 0.03  # vendors round peaks to two or three digits
# Every machine has these; a map without one cannot answer the scheduler.
REQUIRED = {
    "gpu": (
        "units.count", "units.threads", "units.groups", "units.registers", "group.threads",
        "lanes", "vector.bytes", "shared.capacity", "shared.capacity.group", "shared.banks",
        "shared.bank_width", "shared.latency", "l1.latency", "l1.line", "l1.sector",
        "l2.capacity", "l2.latency", "l2.bandwidth", "dram.capacity", "dram.latency",
        "dram.bandwidth", "dram.bandwidth.peak", "clock", "launch", "fma.f32",
    ),
    "cpu": (
        "units.count", "lanes", "vector.bytes", "vector.registers", "l1.capacity", "l1.latency",
        "l1.line", "l1.bandwidth.one", "l2.capacity", "l2.latency", "l2.bandwidth.one",
        "l3.capacity", "l3.latency", "l3.bandwidth", "l3.bandwidth.one", "dram.capacity",
        "dram.latency", "dram.bandwidth", "dram.bandwidth.one", "clock", "launch", "barrier",
        "fma.f32",
    ),
}  # fmt: skip
# Nearest first: each further level is slower and larger, and never has more bandwidth.
ORDER = {"gpu": ("l1", "l2", "dram"), "cpu": ("l1", "l2", "l3", "dram")}


def contradictions(found: PropertyMap) -> tuple[str, ...]:
    """Return one sentence per disagreement; an empty tuple means the map is coherent."""
    return tuple(
        line
        for check in (
            _missing,
            _sources,
            _levels,
            _rates,
            _latencies,
            _capacities,
            _bandwidths,
            _limits,
        )
        for line in check(found)
    )


def _missing(found: PropertyMap) -> Iterator[str]:
    for name in REQUIRED[found.kind]:
        if found.get(name) is None:
            yield f"{found.id}: '{name}' is missing"


def _sources(found: PropertyMap) -> Iterator[str]:
    cited = {entry.source for entry in found.properties.values()}
    for key in sorted(set(found.sources) - cited):
        yield f"{found.id}: source '{key}' is cited by no property"
    for entry in found.properties.values():
        if entry.mark in ("derived", "assumed") and not entry.note:
            yield f"{found.id}: '{entry.name}' is {entry.mark} but its note does not say how"
        if entry.mark == "probe" and entry.samples < 1:
            yield f"{found.id}: '{entry.name}' is probed but has no samples"


def _levels(found: PropertyMap) -> Iterator[str]:
    for space in ("far", "near", "reg"):
        if space not in found.levels:
            yield f"{found.id}: levels do not say what '{space}' is"
    for name, spaces in found.capabilities.items():
        for space in spaces:
            if space not in found.levels:
                yield f"{found.id}: capability '{name}' names unknown level '{space}'"


def _rates(found: PropertyMap) -> Iterator[str]:
    """peak = units x clock x 2 x fused multiply-adds per cycle and unit, for every rate that states
    its width.
    """
    units = found.get("units.count")
    for width in _suffixed(found, ".width"):
        engine = width.name.removesuffix(".width")
        rate = found.get(engine)
        clock = found.get(f"{engine.split('.')[0]}.clock") or found.get("clock")
        if rate is None or units is None or clock is None:
            yield f"{found.id}: '{width.name}' has no rate, unit count or clock beside it"
            continue
        peak = units.value * clock.value * 2.0 * width.value
        if abs(rate.value / peak - 1.0) > RATE_TOLERANCE:
            stated, product = quantity(rate.value, rate.unit), quantity(peak, rate.unit)
            factors = f"{units.value:g} units x {quantity(clock.value, 'Hz')} x 2 x {width.value:g}"
            yield f"{found.id}: '{engine}' is {stated} but {factors} = {product}"


def _latencies(found: PropertyMap) -> Iterator[str]:
    clock = found.get("clock")
    steps = [found.get(f"{level}.latency") for level in ORDER[found.kind]]
    yield from _increasing(found, (_in_seconds(step, clock) for step in steps), strict=True)


def _in_seconds(entry: Property | None, clock: Property | None) -> Property | None:
    if entry is None or clock is None or entry.unit != "cycles":
        return entry
    note = "cycles / clock"
    return derived(entry.name, entry.value / clock.value, "s", note, entry)


def _capacities(found: PropertyMap) -> Iterator[str]:
    yield from _increasing(
        found, (found.get(f"{level}.capacity") for level in ORDER[found.kind]), strict=True
    )


def _bandwidths(found: PropertyMap) -> Iterator[str]:
    for suffix in ("bandwidth", "bandwidth.one"):
        levels = (found.get(f"{level}.{suffix}") for level in reversed(ORDER[found.kind]))
        yield from _increasing(found, levels, strict=False)
    peak, reached = found.get("dram.bandwidth.peak"), found.get("dram.bandwidth")
    if peak is not None and reached is not None and reached.value > peak.value * 1.001:
        yield f"{found.id}: 'dram.bandwidth' exceeds 'dram.bandwidth.peak'"


def _limits(found: PropertyMap) -> Iterator[str]:
    pairs = (
        ("group.threads", "units.threads"),
        ("shared.capacity.group", "shared.capacity"),
        ("l1.sector", "l1.line"),
    )
    for small, large in pairs:
        low, high = found.get(small), found.get(large)
        if low is not None and high is not None and low.value > high.value:
            yield f"{found.id}: '{small}' exceeds '{large}'"


def _suffixed(found: PropertyMap, suffix: str) -> tuple[Property, ...]:
    return tuple(entry for name, entry in found.properties.items() if name.endswith(suffix))


def _increasing(
    found: PropertyMap, steps: Iterable[Property | None], strict: bool
) -> Iterator[str]:
    present = [step for step in steps if step is not None]
    for near, far in pairwise(present):
        # Bandwidths may tie: on a busy host the shared cache and DRAM can look alike within the
        # spread.
        slack = 1.0 if strict else 1.0 - (near.spread or 0.0) - (far.spread or 0.0)
        if far.value < near.value * slack or (strict and far.value == near.value):
            low, high = quantity(near.value, near.unit), quantity(far.value, far.unit)
            yield f"{found.id}: '{far.name}' ({high}) should exceed '{near.name}' ({low})"
