"""What does the driver say about this GPU? No kernel: facts only."""

from __future__ import annotations

from probe_suite.gpu.device import Gpu, open_gpu
from probe_suite.probe import Answer, Probe, Setting
from probe_suite.record import Finding

_ATTRIBUTES = {
    "units.count": ("MULTIPROCESSOR_COUNT", 1.0, "1"),
    "units.threads": ("MAX_THREADS_PER_MULTIPROCESSOR", 1.0, "1"),
    "units.groups": ("MAX_BLOCKS_PER_MULTIPROCESSOR", 1.0, "1"),
    "units.registers": ("MAX_REGISTERS_PER_MULTIPROCESSOR", 1.0, "1"),
    "group.threads": ("MAX_THREADS_PER_BLOCK", 1.0, "1"),
    "lanes": ("WARP_SIZE", 1.0, "1"),
    "shared.capacity": ("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", 1.0, "B"),
    "shared.capacity.group": ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 1.0, "B"),
    "l2.capacity": ("L2_CACHE_SIZE", 1.0, "B"),
    "clock.limit": ("CLOCK_RATE", 1e3, "Hz"),
}


def run(setting: Setting) -> Answer:
    """Read device attributes."""
    gpu = open_gpu(setting)
    if gpu.emulated:
        return Answer((), facts={"model": "emulator"})
    findings: list[Finding] = []
    for name, (attribute, scale, unit) in _ATTRIBUTES.items():
        value = gpu.attribute(attribute)
        if value:
            note = f"driver attribute {attribute}"
            findings.append(Finding(name, value * scale, unit, 0.0, 1, note))
    device = gpu.cuda.Context.get_device()
    memory = float(device.total_memory())
    findings.append(Finding("dram.capacity", memory, "B", 0.0, 1, "driver: total memory"))
    findings += _peak_bandwidth(gpu.attribute("MEMORY_CLOCK_RATE"), gpu)
    facts = {"model": device.name(), "system": f"CUDA driver {gpu.cuda.get_driver_version()}"}
    return Answer(tuple(findings), facts=facts)


def _peak_bandwidth(clock_khz: int | None, gpu: Gpu) -> list[Finding]:
    width = gpu.attribute("GLOBAL_MEMORY_BUS_WIDTH")
    if not clock_khz or not width:
        return []
    note = "memory clock x bus width x 2 (double data rate), as the driver reports them"
    value = 2.0 * clock_khz * 1e3 * width / 8.0
    return [Finding("dram.bandwidth.peak", value, "B/s", 0.0, 1, note)]


PROBE = Probe(
    name="gpu_query",
    kind="gpu",
    question="What does the driver say about this GPU?",
    yields=(*_ATTRIBUTES, "dram.capacity", "dram.bandwidth.peak"),
    run=run,
)
