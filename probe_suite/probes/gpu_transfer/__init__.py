"""How fast do bytes travel between host and device, and what does a small copy cost?"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from probe_suite import fit, samples
from probe_suite.gpu.device import Gpu, open_gpu
from probe_suite.gpu.verify import random_floats, require_values
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Series

KIB, MIB = 1 << 10, 1 << 20


def run(setting: Setting) -> Answer:
    """Copy 4 KiB to 64 MiB both ways from page-locked and from ordinary memory."""
    gpu = open_gpu(setting)
    sizes = fit.geometric(4 * KIB, MIB if gpu.emulated else 64 * MIB, 1)
    device = gpu.cuda.mem_alloc(sizes[-1])
    _check(gpu, device)
    if gpu.emulated:
        return Answer(())
    locked = gpu.cuda.pagelocked_empty(sizes[-1] // 4, np.float32)
    locked[:] = random_floats(locked.size)
    plain = locked.copy()
    series: list[Series] = []
    findings: list[Finding] = []
    for name, host in (("page-locked", locked), ("ordinary", plain)):
        for way in ("to device", "to host"):
            curve = [_copy(gpu, device, host, size, way) for size in sizes]
            x, y = tuple(float(s) for s in sizes), tuple(each.best for each in curve)
            series.append(Series(f"{name}, {way}", x, y, "B", "s"))
            if name == "page-locked":
                findings += _findings(way, x, y, curve[-1])
    return Answer(tuple(findings), tuple(series))


def _findings(
    way: str, x: tuple[float, ...], y: tuple[float, ...], last: samples.Samples
) -> list[Finding]:
    start, slope = fit.line(x, y)
    if way == "to host":
        note = "slope of time over bytes, page-locked memory, to host"
        return [Finding("host.bandwidth.read", 1.0 / slope, "B/s", last.spread, last.count, note)]
    note = "slope of time over bytes, page-locked memory, to device"
    found = [Finding("host.bandwidth", 1.0 / slope, "B/s", last.spread, last.count, note)]
    if start > 1e-9:
        note = "time of a copy of no bytes: intercept of the same line"
        found.append(Finding("host.latency", start, "s", 0.0, last.count, note))
    return found


def _copy(gpu: Gpu, device: Any, host: np.ndarray, size: int, way: str) -> samples.Samples:
    part = host[: size // 4]
    to_device = way == "to device"

    def once() -> float:
        started = time.perf_counter()
        if to_device:
            gpu.cuda.memcpy_htod(device, part)
        else:
            gpu.cuda.memcpy_dtoh(part, device)
        gpu.cuda.Context.synchronize()
        return time.perf_counter() - started

    once()
    return samples.repeat(once, budget_s=0.3)


def _check(gpu: Gpu, device: Any) -> None:
    there = random_floats(1024, seed=3)
    gpu.cuda.memcpy_htod(device, there)
    require_values("copy there and back", gpu.get(device, 1024), there)


PROBE = Probe(
    name="gpu_transfer",
    kind="gpu",
    question="How fast do bytes travel between host and device?",
    yields=("host.bandwidth", "host.bandwidth.read", "host.latency"),
    run=run,
    plot=Plot("bytes of the copy", "time of one copy", log_x=True, log_y=True),
)
