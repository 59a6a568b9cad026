"""What does a strided warp load cost, and how many sectors does it move?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from probe_suite import fit
from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import random_floats, require_count, require_values
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Series
from unistack_aot.hw.machine import machine_for_arch

KERNEL = GpuKernel(Path(__file__).with_name("kernel.cu"), "strided", r"\bLDG\.E\b", 8)
STRIDES = (1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 64)
_NEAR, _FAR = 1 << 11, 1 << 28  # words: fits a first-level cache; far beyond any cache


def run(setting: Setting) -> Answer:
    """Sweep strides over a cached and an uncached buffer; the emulator counts sectors instead."""
    gpu = open_gpu(setting)
    built = gpu.build(KERNEL)
    sectors = _check(gpu, built)
    if gpu.emulated:
        return Answer((), (sectors,))
    units = gpu.attribute("MULTIPROCESSOR_COUNT") or 1
    near = _sweep(gpu, built, units, 128, _NEAR, 256)
    far = _sweep(gpu, built, units * 16, 256, _FAR, 8)
    # A data stage (all sectors) and a tag stage (one look-up per line): the slower one decides.
    models = [fit.roof(sectors.y, each.y) for each in (near, far)]
    series = (
        Series("cached", near.x, near.y, "words", "s"),
        Series("uncached", far.x, far.y, "words", "s"),
        *(
            Series(
                f"{name}, fitted (off by {model.residual:.0%})",
                sectors.x, tuple(model.at(moved) for moved in sectors.y), "words", "s", fitted=True,
            )
            for name, model in zip(("cached", "uncached"), models, strict=True)
        ),
    )  # fmt: skip
    ratio = far.y[STRIDES.index(8)] / far.y[0]
    note = "time of an uncached load 8 words apart over one side by side: 8 when sectors decide"
    found = Finding("l1.stride8", ratio, "1", 0.0, len(STRIDES), note)
    return Answer((found,), series, (built.seen,) if built.seen else ())


def _check(gpu: Gpu, built: Built) -> Series:
    """Require the sums; on the emulator also the sectors that Machine predicts."""
    machine = machine_for_arch(gpu.arch)
    host, words, rounds = random_floats(1 << 12), 1 << 12, 2
    data, sums = gpu.put(host), gpu.put(np.zeros(64, np.float32))
    counted: list[float] = []
    for stride in STRIDES:
        gpu.launch(built, 2, 32, data, sums, stride, words - 1, rounds)
        thread, step = np.arange(64)[:, None], np.arange(8 * rounds)[None, :]
        want = host[(thread * stride + step * 64 * stride) & (words - 1)].sum(axis=1)
        require_values(f"sums at stride {stride}", gpu.get(sums, 64), want)
        predicted = machine.sector_cost(4 * stride, 4).value
        if gpu.emulated:
            moved = gpu.traffic(built, 2, 32, data, sums, stride, words - 1, rounds).load
            require_count(f"sectors at stride {stride}", moved.sectors_per_request, predicted)
            counted.append(moved.sectors_per_request)
        else:
            counted.append(predicted)
    x = tuple(float(stride) for stride in STRIDES)
    return Series("sectors of one warp load", x, tuple(counted), "words", "1")


def _sweep(gpu: Gpu, built: Built, grid: int, block: int, words: int, rounds: int) -> Series:
    data = gpu.put(random_floats(words))
    sums = gpu.put(np.zeros(grid * block, np.float32))
    loads = 8.0 * rounds * grid * block / 32.0
    times = [
        gpu.time(built, grid, block, data, sums, stride, words - 1, rounds).best / loads
        for stride in STRIDES
    ]
    return Series("", tuple(float(stride) for stride in STRIDES), tuple(times), "words", "s")


PROBE = Probe(
    name="gpu_stride",
    kind="gpu",
    question="What does a strided warp load cost?",
    yields=("l1.stride8",),
    run=run,
    plot=Plot("stride (words)", "time of one warp load", log_x=True, log_y=True),
    kernels=(KERNEL,),
)
