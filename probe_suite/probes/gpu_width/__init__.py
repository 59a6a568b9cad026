"""How many bytes should one load fetch?"""

from __future__ import annotations

from probe_suite.gpu.device import open_gpu
from probe_suite.gpu.streaming import Run, check_stream, stream_kernel, time_stream
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Seen, Series

WIDTHS = (1, 2, 4)
KERNELS = tuple(stream_kernel(width, 1) for width in WIDTHS)
_SIZE, _BLOCK = 1 << 30, 256


def run(setting: Setting) -> Answer:
    """Stream a large buffer with 4, 8 and 16 bytes per load."""
    gpu = open_gpu(setting)
    units = gpu.attribute("MULTIPROCESSOR_COUNT") or 1
    runs: list[Run] = []
    seen: list[Seen] = []
    for kernel in KERNELS:
        built = gpu.build(kernel)
        check_stream(gpu, kernel, built)
        if built.seen:
            seen.append(built.seen)
        if not gpu.emulated:
            runs.append(time_stream(gpu, kernel, built, _SIZE, units * 8, _BLOCK))
    if gpu.emulated:
        return Answer(())
    best = max(range(len(WIDTHS)), key=lambda index: runs[index].rate)
    note = "load width with the highest streaming rate, one load in flight per thread"
    found = Finding("vector.bytes", 4.0 * WIDTHS[best], "B", 0.0, runs[best].found.count, note)
    x = tuple(4.0 * width for width in WIDTHS)
    curve = Series("streaming read", x, tuple(run.rate for run in runs), "B", "B/s")
    return Answer((found,), (curve,), tuple(seen))


PROBE = Probe(
    name="gpu_width",
    kind="gpu",
    question="How many bytes should one load fetch?",
    yields=("vector.bytes",),
    run=run,
    plot=Plot("bytes of one load", "read bandwidth"),
    kernels=KERNELS,
)
