"""The streaming kernel that three probes share: building, checking and timing one configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from probe_suite import samples
from probe_suite.gpu.device import Built, Gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import random_floats, require_count, require_values

_FILE = Path(__file__).with_name("stream.cu")
_LOADS = {
    1: r"LDG\.E(?:\.CONSTANT)?(?!\.\w*64|\.\w*128)\b(?!\.64|\.128)",
    2: r"LDG\.E[\w.]*\.64",
    4: r"LDG\.E[\w.]*\.128",
}


def stream_kernel(width: int, loads: int) -> GpuKernel:
    """Return the kernel that reads `width` floats per load with `loads` loads under way."""
    defines = {"WIDTH": width, "LOADS": loads}
    return GpuKernel(_FILE, "stream", _LOADS[width], loads, defines=defines)


@dataclass(frozen=True, slots=True)
class Run:
    """One timed configuration."""

    found: samples.Samples
    bytes: float
    bytes_of_buffer: float

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.bytes / self.found.best


def time_stream(
    gpu: Gpu, kernel: GpuKernel, built: Built, size: int, grid: int, block: int, shared: int = 0
) -> Run:
    """Time reads of a buffer of about `size` bytes, repeated until a launch moves some 64 MB."""
    width, loads = int(kernel.defines["WIDTH"]), int(kernel.defines["LOADS"])
    step = grid * block * loads
    vectors = max(1, size // (4 * width * step)) * step
    rounds = max(1, (64 << 20) // (vectors * width * 4))
    data = gpu.put(random_floats(vectors * width))
    sums = gpu.put(np.zeros(grid * block, np.float32))
    found = gpu.time(built, grid, block, data, sums, vectors, rounds, shared=shared)
    size_read = float(vectors) * width * 4
    return Run(found, size_read * rounds, size_read)


def check_stream(gpu: Gpu, kernel: GpuKernel, built: Built) -> None:
    """Require the sums of a small stream, and on the emulator its sectors."""
    width, loads, grid, block = int(kernel.defines["WIDTH"]), int(kernel.defines["LOADS"]), 2, 64
    threads = grid * block
    vectors = threads * loads * 3
    host = random_floats(vectors * width)
    data, sums = gpu.put(host), gpu.put(np.zeros(threads, np.float32))
    gpu.launch(built, grid, block, data, sums, vectors, 2, shared=16)
    want = 2 * host.reshape(-1, threads, width).sum(axis=(0, 2))
    require_values(f"stream of {4 * width} B loads", gpu.get(sums, threads), want)
    if gpu.emulated:
        moved = gpu.traffic(built, grid, block, data, sums, vectors, 1, shared=16)
        require_count("sectors of a stream", moved.load.sectors, host.nbytes / 32)
        require_count("bytes of a stream", moved.load.bytes, host.nbytes)
