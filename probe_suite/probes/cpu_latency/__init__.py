"""How long does one dependent load take, as the footprint outgrows each cache, and what do small
pages add?
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from probe_suite import fit, samples, toolchain
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Series

KIB, MIB = 1 << 10, 1 << 20
_LINE = 64
_ROUND_BYTES = 64 * _LINE


def run(setting: Setting) -> Answer:
    """Chase pointers over 4 KiB .. 128 MiB with large and with small pages."""
    library = setting.scratch / "cpu_latency.so"
    built = toolchain.build_cpu(Path(__file__).with_name("kernel.cpp"), library, setting.arch)
    seen = toolchain.see_cpu(library, "chase", r"mov\s+\(%r\w+\),%r|ldr\s+x", 64)
    built.chase.restype = ctypes.c_double
    last = 64 * MIB if setting.quick else 128 * MIB
    sizes = {True: fit.geometric(4 * KIB, last, 1 if setting.quick else 2)}
    sizes[False] = fit.geometric(4 * KIB, last, 1)
    curves = {large: [_point(built, size, large) for size in sizes[large]] for large in sizes}
    series = tuple(
        Series(
            name, tuple(map(float, sizes[large])), tuple(p.best for p in curves[large]), "B", "s"
        )
        for large, name in ((True, "pages of 2 MiB (asked for)"), (False, "pages of 4 KiB"))
    )
    levels = _levels(sizes[True], curves[True], setting)
    series = (*series, level_model(sizes[True], levels, "latency", "s", setting))
    return Answer((*levels, *_pages(last, curves)), series, (seen,))


def level_model(
    sizes: tuple[int, ...],
    findings: tuple[Finding, ...],
    quantity: str,
    unit: str,
    setting: Setting,
) -> Series:
    """What the map will say of each footprint: the figure of the smallest level that holds it."""
    found = {each.name: each.value for each in findings}
    known = {**setting.known, **found}
    most = {"l1": 32 * KIB, "l2": 512 * KIB, "l3": 32 * MIB, "dram": 1e18}
    steps = [
        (
            known.get(f"{level}.capacity.seen", known.get(f"{level}.capacity", bytes_held)),
            found[f"{level}.{quantity}"],
        )
        for level, bytes_held in most.items()
        if f"{level}.{quantity}" in found
    ]
    x = tuple(float(size) for size in sizes)
    return Series("the map's levels", x, fit.stairs(x, steps), "B", unit, fitted=True)


def _point(built: ctypes.CDLL, size: int, large: bool) -> samples.Samples:
    built.prepare(ctypes.c_int64(size), ctypes.c_int64(_LINE), ctypes.c_int64(int(large)))
    # Two turns bring the ring into the caches it fits. A timed run is short, so that some runs are
    # not interrupted, and goes on where the last one stopped.
    built.chase(ctypes.c_int64(max(64, 2 * size // _ROUND_BYTES)))
    rounds = ctypes.c_int64(512 if size <= MIB else 64)
    return samples.repeat(lambda: built.chase(rounds), budget_s=0.3)


def _levels(
    sizes: tuple[int, ...], curve: list[samples.Samples], setting: Setting
) -> tuple[Finding, ...]:
    """Return the best latency among the footprints that belong to each level.

    The shared last level is read just above the second: on a busy machine others push lines out of
    it while a slow chase goes round, and larger footprints show that, not the cache.
    """
    known = setting.known
    l1, l2 = known.get("l1.capacity", 32 * KIB), known.get("l2.capacity", 512 * KIB)
    l3 = known.get("l3.capacity", 32 * MIB)
    ranges = {
        "l1": (0.0, 0.75 * l1),
        "l2": (2.0 * l1, 0.5 * l2),
        "l3": (2.0 * l2, 4.0 * l2),
        "dram": (3.0 * l3, 1e18),
    }
    found: list[Finding] = []
    for level, (low, high) in ranges.items():
        points = [s for size, s in zip(sizes, curve, strict=True) if low <= size <= high]
        if not points:
            continue
        best = min(points, key=lambda s: s.best)
        note = f"random chase over {low:g} .. {min(high, sizes[-1]):g} B with large pages"
        found.append(Finding(f"{level}.latency", best.best, "s", best.spread, best.count, note))
    knee = fit.knee([float(s) for s in sizes], [each.best for each in curve])
    if knee is not None:
        note = "largest footprint before the first rise of the chase"
        found.append(Finding("l1.capacity.seen", knee, "B", 0.0, len(sizes), note))
    return tuple(found)


def _pages(last: int, curves: dict[bool, list[samples.Samples]]) -> tuple[Finding, ...]:
    large, small = curves[True][-1], curves[False][-1]
    extra = small.best - large.best
    if extra <= 0:
        return ()
    note = f"chase over {last} B: pages of 4 KiB minus pages of 2 MiB"
    spread = min(0.99, large.spread + small.spread)
    return (Finding("page.miss", extra, "s", spread, small.count, note),)


PROBE = Probe(
    name="cpu_latency",
    kind="cpu",
    question="How long does one dependent load take from each level, and what do small pages add?",
    yields=(
        "l1.latency", "l2.latency", "l3.latency", "dram.latency", "page.miss", "l1.capacity.seen",
    ),
    run=run,
    plot=Plot("footprint", "time of one load", log_x=True, log_y=True),
    limit_s=150.0,
)  # fmt: skip
