"""How long does one dependent load take, as the footprint outgrows each cache?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from probe_suite import fit
from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import require_values
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Series

KERNEL = GpuKernel(Path(__file__).with_name("kernel.cu"), "chase", r"\bLDG\.E\b", 64)
KIB, MIB = 1 << 10, 1 << 20
_STEP = 128  # bytes between links: one line each
_RUNS = 5


def run(setting: Setting) -> Answer:
    """Chase a random ring of lines from 4 KiB to 1 GiB on one thread."""
    gpu = open_gpu(setting)
    built = gpu.build(KERNEL)
    _check(gpu, built)
    if gpu.emulated:
        return Answer(())
    sizes = fit.geometric(4 * KIB, 256 * MIB if setting.quick else 1024 * MIB, 1)
    points = [_cycles(gpu, built, size) for size in sizes]
    best = [min(each) for each in points]
    l2 = setting.known.get("l2.capacity", 40.0 * MIB)
    ranges = {
        "l1": (0.0, 16.0 * KIB),
        "l2": (1.0 * MIB, 0.25 * l2),
        "dram": (4.0 * l2, 1e18),
    }
    findings: list[Finding] = []
    for level, (low, high) in ranges.items():
        inside = [each for size, each in zip(sizes, points, strict=True) if low <= size <= high]
        if inside:
            lowest = min(inside, key=min)
            spread = min(0.99, (float(np.median(lowest)) - min(lowest)) / min(lowest))
            note = f"random chase over {low:g} .. {min(high, sizes[-1]):g} B"
            count = _RUNS * len(inside)
            findings.append(Finding(f"{level}.latency", min(lowest), "cycles", spread, count, note))
    x = tuple(float(size) for size in sizes)
    curve = Series("dependent load", x, tuple(best), "B", "cycles")
    found = {each.name.split(".")[0]: each.value for each in findings}
    held = {"l1": 128.0 * 1024, "l2": l2, "dram": 1e18}
    steps = [(most, found[level]) for level, most in held.items() if level in found]
    fitted = Series("the map's levels", x, fit.stairs(x, steps), "B", "cycles", fitted=True)
    return Answer(tuple(findings), (curve, fitted), (built.seen,) if built.seen else ())


def ring(size: int, seed: int = 7) -> np.ndarray:
    """Return indices (in words) that link all lines of `size` bytes into one random cycle."""
    lines = size // _STEP
    order = np.random.default_rng(seed).permutation(lines)
    words = np.zeros(size // 4, np.int32)
    stride = _STEP // 4
    words[order * stride] = np.roll(order, -1) * stride
    return words


def _check(gpu: Gpu, built: Built) -> None:
    links = ring(8 * KIB)
    data, last = gpu.put(links), gpu.put(np.zeros(1, np.int32))
    gpu.launch(built, 1, 1, data, last, gpu.put(np.zeros(1, np.int64)), 0, 2)
    at = 0
    for _ in range(128):
        at = int(links[at])
    require_values("end of the chase", gpu.get(last, 1, np.int32), np.array([at], np.int32))


def _cycles(gpu: Gpu, built: Built, size: int) -> list[float]:
    data, last = gpu.put(ring(size)), gpu.put(np.zeros(1, np.int32))
    ticks = gpu.put(np.zeros(1, np.int64))
    rounds = max(64, min(size // _STEP // 64 * 2, 2048))
    found: list[float] = []
    at = 0
    for _ in range(_RUNS + 1):
        gpu.launch(built, 1, 1, data, last, ticks, at, rounds)
        at = int(gpu.get(last, 1, np.int32)[0])
        found.append(float(gpu.get(ticks, 1, np.int64)[0]) / (64.0 * rounds))
    return found[1:]


PROBE = Probe(
    name="gpu_latency",
    kind="gpu",
    question="How long does one dependent load take from each level?",
    yields=("l1.latency", "l2.latency", "dram.latency"),
    run=run,
    plot=Plot("footprint", "cycles of one load", log_x=True, log_y=True),
    limit_s=120.0,
    kernels=(KERNEL,),
)
