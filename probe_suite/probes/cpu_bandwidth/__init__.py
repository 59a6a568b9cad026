"""How many bytes a second does each level deliver, to one thread and to all?"""

from __future__ import annotations

import ctypes
from pathlib import Path

from probe_suite import cpu_facts, fit, samples, toolchain
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.probes.cpu_latency import level_model
from probe_suite.record import Finding, Seen, Series

KIB, MIB = 1 << 10, 1 << 20
WIDTH = {"x86-64-v2": 16, "x86-64-v3": 32, "x86-64-v4": 64, "aarch64": 16}
_REGISTER = {
    "x86-64-v2": r"%xmm\d",
    "x86-64-v3": r"%ymm\d",
    "x86-64-v4": r"%zmm\d",
    "aarch64": r"\bq\d",
}
_READ, _WRITE, _COPY = 0, 1, 2
# Bytes of one timed run: a fraction of a millisecond, so that some runs are not interrupted. A
# larger footprint is read window by window, so that no line is met again before all others were.
_VOLUME, _WINDOW = 16 * MIB, 8 * MIB


def run(setting: Setting) -> Answer:
    """Read footprints from half a first-level cache to several times the last; write and copy the
    extremes.
    """
    library = setting.scratch / "cpu_bandwidth.so"
    defines = [f"VECTOR_BYTES={WIDTH[setting.arch]}"]
    source = Path(__file__).with_name("kernel.cpp")
    built = toolchain.build_cpu(source, library, setting.arch, defines)
    built.stream.restype = ctypes.c_double
    seen = _seen(library, setting.arch)
    threads = cpu_facts.cores()
    last = 64 * MIB if setting.quick else 256 * MIB
    totals = fit.geometric(16 * KIB, last, 1)
    one = [_rate(built, total, 1, _READ) for total in totals]
    each = fit.geometric(16 * KIB, last // threads, 1)
    every = [_rate(built, size, threads, _READ) for size in each]
    series = (
        _curve("read, one thread", totals, one),
        _curve(f"read, {threads} threads", tuple(size * threads for size in each), every),
    )
    findings = _findings(setting, totals, one, each, every, threads)
    series = (*series, level_model(totals, findings, "bandwidth.one", "B/s", setting))
    return Answer((*findings, *_others(built, last, threads)), series, seen)


class Rate:
    """Bytes per second of one point, with the samples it came from."""

    def __init__(self, bytes_moved: float, found: samples.Samples) -> None:
        self.value = bytes_moved / found.best
        self.found = found


def _rate(built: ctypes.CDLL, size: int, threads: int, mode: int) -> Rate:
    built.prepare(ctypes.c_int64(size), ctypes.c_int64(threads))
    window = min(size, _WINDOW)
    passes = max(1, _VOLUME // size)
    whole = [ctypes.c_int64(value) for value in (size, size, threads, 1, mode)]
    built.stream(*whole)
    args = [ctypes.c_int64(value) for value in (size, window, threads, passes, mode)]
    found = samples.repeat(lambda: built.stream(*args), 0.4)
    return Rate(float(window) * passes * threads, found)


def _curve(name: str, sizes: tuple[int, ...], rates: list[Rate]) -> Series:
    return Series(name, tuple(float(s) for s in sizes), tuple(r.value for r in rates), "B", "B/s")


def _findings(
    setting: Setting,
    totals: tuple[int, ...],
    one: list[Rate],
    each: tuple[int, ...],
    every: list[Rate],
    threads: int,
) -> tuple[Finding, ...]:
    known = setting.known
    l1, l2 = known.get("l1.capacity", 32 * KIB), known.get("l2.capacity", 512 * KIB)
    l3 = known.get("l3.capacity", 32 * MIB)
    ranges = {
        "l1": (0.0, 0.75 * l1),
        "l2": (2.0 * l1, 0.75 * l2),
        "l3": (3.0 * l2 * threads, 0.5 * l3),
        "dram": (3.0 * l3, 1e18),
    }
    found: list[Finding] = []
    for level, (low, high) in ranges.items():
        found += _level(f"{level}.bandwidth.one", totals, one, low, high, "one thread")
        shared = level in ("l3", "dram")
        sizes = tuple(size * threads for size in each) if shared else each
        found += _level(f"{level}.bandwidth", sizes, every, low, high, f"{threads} threads")
    return (*found, *_kept(totals, one, 3.0 * l2, found))


def _level(
    name: str, sizes: tuple[int, ...], rates: list[Rate], low: float, high: float, who: str
) -> list[Finding]:
    points = [rate for size, rate in zip(sizes, rates, strict=True) if low <= size <= high]
    if not points:
        return []
    best = max(points, key=lambda rate: rate.value)
    note = f"sequential vector reads by {who}"
    return [Finding(name, best.value, "B/s", best.found.spread, best.found.count, note)]


def _kept(
    sizes: tuple[int, ...], rates: list[Rate], low: float, found: list[Finding]
) -> list[Finding]:
    """How much the last cache keeps for one thread: others, in other machines too, may fill the rest."""
    known = {finding.name: finding.value for finding in found}
    if not {"l3.bandwidth.one", "dram.bandwidth.one"} <= known.keys():
        return []
    middle = (known["l3.bandwidth.one"] * known["dram.bandwidth.one"]) ** 0.5
    kept = low
    for size, rate in zip(sizes, rates, strict=True):
        if size > low and rate.value < middle:
            break
        kept = max(kept, float(size))
    note = (
        "largest footprint that one thread reads nearer to the last cache's rate than to memory's"
    )
    return [Finding("l3.capacity.seen", kept, "B", 0.0, len(sizes), note)]


def _others(built: ctypes.CDLL, last: int, threads: int) -> tuple[Finding, ...]:
    """Write and copy rates far from the caches; a plain store reads its line first, which is why
    they are lower.
    """
    found: list[Finding] = []
    for name, mode in (("write", _WRITE), ("copy", _COPY)):
        rate = _rate(built, last // threads, threads, mode)
        note = f"{threads} threads, plain stores, bytes the program names"
        spread = rate.found.spread
        found.append(
            Finding(f"dram.bandwidth.{name}", rate.value, "B/s", spread, rate.found.count, note)
        )
    return tuple(found)


def _seen(library: Path, arch: str) -> tuple[Seen, ...]:
    moves = r"(?:v?mov[au]p[sd]|v?movdq[au]\d*|ld[rp])\b.*" + _REGISTER[arch]
    return (toolchain.see_cpu(library, "read_pass", moves, 4),)


PROBE = Probe(
    name="cpu_bandwidth",
    kind="cpu",
    question="How many bytes a second does each level deliver, to one thread and to all?",
    yields=(
        *(
            f"{level}.bandwidth{who}"
            for level in ("l1", "l2", "l3", "dram")
            for who in ("", ".one")
        ),
        "dram.bandwidth.write",
        "dram.bandwidth.copy",
        "l3.capacity.seen",
    ),
    run=run,
    plot=Plot("footprint of all threads", "read bandwidth", log_x=True, log_y=True),
    limit_s=150.0,
)
