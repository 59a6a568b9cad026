"""What does a shared-memory access cost at each stride and width?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from probe_suite import fit
from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import require_count, require_values
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Seen, Series
from unistack_aot.hw.machine import Machine, machine_for_arch

_FILE = Path(__file__).with_name("kernel.cu")
WIDTHS = {1: r"\bLDS(?:\.U)?\s", 2: r"\bLDS(?:\.U)?\.64\b", 4: r"\bLDS(?:\.U)?\.128\b"}
KERNELS = {
    w: GpuKernel(_FILE, "banks", sass, 16, defines={"WIDTH": w}) for w, sass in WIDTHS.items()
}
STRIDES = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32)
_ELEMENTS, _ROUNDS, _RUNS = 1024, 200, 5


def run(setting: Setting) -> Answer:
    """Sweep strides and widths; the emulator counts wavefronts instead of cycles."""
    gpu = open_gpu(setting)
    machine = machine_for_arch(gpu.arch)
    series: list[Series] = []
    seen: list[Seen] = []
    for width, kernel in KERNELS.items():
        built = gpu.build(kernel)
        if built.seen:
            seen.append(built.seen)
        points = [_point(gpu, built, machine, width, stride) for stride in STRIDES]
        x, name = tuple(float(s) for s in STRIDES), f"{4 * width} B per lane"
        series.append(Series(name, x, tuple(points), "elements", "cycles"))
    if gpu.emulated:
        return Answer((), tuple(series))
    passes = [machine.bank_cost(stride * 4, 4).value for stride in STRIDES]
    model = fit.roof(passes, series[0].y)
    x, y = tuple(float(s) for s in STRIDES), tuple(model.at(each) for each in passes)
    series.append(Series("4 B per lane, fitted", x, y, "elements", "cycles", fitted=True))
    slope = (series[0].y[-1] - series[0].y[0]) / 31.0
    note = (
        "(stride 32 - stride 1) / 31 further passes of a 4-byte access by one warp; the larger of "
        f"{model.flat:.3g} cycles and {model.slope:.3g} per pass is off by {model.residual:.0%}"
    )
    found = Finding("shared.conflict", max(0.25, slope), "cycles", 0.0, _RUNS, note)
    return Answer((found,), tuple(series), tuple(seen))


def _point(gpu: Gpu, built: Built, machine: Machine, width: int, stride: int) -> float:
    """Check the sums; return cycles of one access, or its wavefronts on the emulator."""
    shared = _ELEMENTS * width * 4
    sums, ticks = gpu.put(np.zeros(32, np.float32)), gpu.put(np.zeros(1, np.int64))
    gpu.launch(built, 1, 32, sums, ticks, stride, _ELEMENTS, 2, shared=shared)
    words = (np.arange(_ELEMENTS * width) % 251 + 1).reshape(_ELEMENTS, width)
    lane, step = np.arange(32)[:, None], np.arange(32)[None, :]
    want = words[(lane * stride + step) & (_ELEMENTS - 1)].sum(axis=(1, 2)).astype(np.float32)
    require_values(f"sums at stride {stride}, width {width}", gpu.get(sums, 32), want)
    if gpu.emulated:
        moved = gpu.traffic(built, 1, 32, sums, ticks, stride, _ELEMENTS, 2, shared=shared)
        counted = moved.shared_load.wavefronts / moved.shared_load.requests
        predicted = machine.bank_cost(stride * width * 4, width * 4).value
        require_count(f"wavefronts at stride {stride}, width {width}", counted, predicted)
        return counted
    best = float("inf")
    for _ in range(_RUNS):
        gpu.launch(built, 1, 32, sums, ticks, stride, _ELEMENTS, _ROUNDS, shared=shared)
        best = min(best, float(gpu.get(ticks, 1, np.int64)[0]) / (16.0 * _ROUNDS))
    return best


PROBE = Probe(
    name="gpu_banks",
    kind="gpu",
    question="What does a shared-memory access cost at each stride and width?",
    yields=("shared.conflict",),
    run=run,
    plot=Plot("stride (elements)", "cycles of one access", log_x=True, log_y=True),
    kernels=tuple(KERNELS.values()),
)
