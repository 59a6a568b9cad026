"""What does a strided load cost, and when does every load move a line of its own?"""

from __future__ import annotations

import ctypes
from pathlib import Path

from probe_suite import fit, samples, toolchain
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Series

KIB, MIB = 1 << 10, 1 << 20
STRIDES = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def run(setting: Setting) -> Answer:
    """Sweep strides over a block that fits the second level, and over one that fits no cache."""
    library = setting.scratch / "cpu_stride.so"
    built = toolchain.build_cpu(Path(__file__).with_name("kernel.cpp"), library, setting.arch)
    built.sweep.restype = ctypes.c_double
    seen = toolchain.see_cpu(library, "sweep", r"\bv?movss\b|ldr\s+s", 4)
    near = int(setting.known.get("l2.capacity", 512 * KIB) // 2)
    far = 64 * MIB if setting.quick else 192 * MIB
    x = tuple(float(stride) for stride in STRIDES)
    series: list[Series] = []
    for name, size in (("second level", near), ("memory", far)):
        built.prepare(ctypes.c_int64(size))
        curve = [_point(built, size, stride) for stride in STRIDES]
        series.append(Series(name, x, tuple(point.best for point in curve), "B", "s"))
    series.append(_model(x, tuple(point.best for point in curve)))
    last = curve[STRIDES.index(64)]
    note = "independent loads 64 B apart, with the hardware prefetchers' help"
    spread = last.spread
    found = Finding("dram.line", last.best, "s", spread, last.count, note)
    return Answer((found,), tuple(series), (seen,))


def _model(x: tuple[float, ...], y: tuple[float, ...]) -> Series:
    """A load moves what it is the first to touch, at most a line, or two that are fetched as a pair."""
    tried = {most: fit.roof([min(stride, most) for stride in x], y) for most in (64.0, 128.0)}
    most, model = min(tried.items(), key=lambda each: each[1].residual)
    words = f"memory: {model.slope * 1e12:.3g} ps per B, at most {most:.0f} B"
    fitted = tuple(model.at(min(stride, most)) for stride in x)
    return Series(f"{words} (off by {model.residual:.0%})", x, fitted, "B", "s", fitted=True)


def _point(built: ctypes.CDLL, size: int, stride: int) -> samples.Samples:
    step = ctypes.c_int64(stride)
    built.sweep(step, ctypes.c_int64(size // stride))
    loads = ctypes.c_int64(20_000)
    return samples.repeat(lambda: built.sweep(step, loads), budget_s=0.3)


PROBE = Probe(
    name="cpu_stride",
    kind="cpu",
    question="What does a strided load cost, and when does every load move a line of its own?",
    yields=("dram.line",),
    run=run,
    plot=Plot("stride", "time of one load", log_x=True, log_y=True),
)
