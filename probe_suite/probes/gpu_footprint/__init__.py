"""How many bytes a second arrive, as the footprint of all units outgrows the caches?"""

from __future__ import annotations

from probe_suite import fit
from probe_suite.gpu.device import open_gpu
from probe_suite.gpu.streaming import check_stream, stream_kernel, time_stream
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Series

KERNEL = stream_kernel(4, 4)
MIB = 1 << 20
_BLOCK = 256


def run(setting: Setting) -> Answer:
    """Read buffers of 1 MiB to 2 GiB again and again with all units."""
    gpu = open_gpu(setting)
    built = gpu.build(KERNEL)
    check_stream(gpu, KERNEL, built)
    if gpu.emulated:
        return Answer(())
    units = gpu.attribute("MULTIPROCESSOR_COUNT") or 1
    sizes = fit.geometric(4 * MIB, 512 * MIB if setting.quick else 2048 * MIB, 1)
    runs = [time_stream(gpu, KERNEL, built, size, units * 4, _BLOCK) for size in sizes]
    l2 = setting.known.get("l2.capacity", 40.0 * MIB)
    findings: list[Finding] = []
    for level, low, high in (("l2", 0.0, 0.6 * l2), ("dram", 4.0 * l2, 1e18)):
        inside = [run for run in runs if low <= run.bytes_of_buffer <= high]
        if inside:
            best = max(inside, key=lambda run: run.rate)
            note = f"repeated reads of {low:g} .. {min(high, sizes[-1]):g} B by all units"
            spread, count = best.found.spread, best.found.count
            findings.append(Finding(f"{level}.bandwidth", best.rate, "B/s", spread, count, note))
    x = tuple(run.bytes_of_buffer for run in runs)
    curve = Series("repeated read", x, tuple(run.rate for run in runs), "B", "B/s")
    found = {each.name.split(".")[0]: each.value for each in findings}
    held = {"l1": 128.0 * 1024, "l2": l2, "dram": 1e18}
    steps = [(most, found[level]) for level, most in held.items() if level in found]
    fitted = Series("the map's levels", x, fit.stairs(x, steps), "B", "B/s", fitted=True)
    return Answer(tuple(findings), (curve, fitted), (built.seen,) if built.seen else ())


PROBE = Probe(
    name="gpu_footprint",
    kind="gpu",
    question="How many bytes a second arrive, as the footprint outgrows the caches?",
    yields=("l2.bandwidth", "dram.bandwidth"),
    run=run,
    plot=Plot("footprint", "read bandwidth", log_x=True, log_y=True),
    limit_s=120.0,
    kernels=(KERNEL,),
)
