"""All probes, one folder each: question, kernel, sweep, fit, plot; in the order of a run."""

from __future__ import annotations

from probe_suite.probe import Probe
from probe_suite.probes import (
    cpu_bandwidth,
    cpu_clock,
    cpu_dot,
    cpu_fma,
    cpu_gather,
    cpu_latency,
    cpu_query,
    cpu_stride,
    cpu_threads,
    gpu_atomics,
    gpu_banks,
    gpu_barrier,
    gpu_chains,
    gpu_clock,
    gpu_copy_async,
    gpu_footprint,
    gpu_latency,
    gpu_launch,
    gpu_mma,
    gpu_occupancy,
    gpu_query,
    gpu_stride,
    gpu_transfer,
    gpu_width,
)

# Facts first: later probes size their sweeps by them.
PROBES: tuple[Probe, ...] = (
    cpu_query.PROBE,
    cpu_clock.PROBE,
    cpu_fma.PROBE,
    cpu_dot.PROBE,
    cpu_bandwidth.PROBE,
    cpu_latency.PROBE,
    cpu_stride.PROBE,
    cpu_gather.PROBE,
    cpu_threads.PROBE,
    gpu_query.PROBE,
    gpu_clock.PROBE,
    gpu_chains.PROBE,
    gpu_mma.PROBE,
    gpu_latency.PROBE,
    gpu_footprint.PROBE,
    gpu_width.PROBE,
    gpu_occupancy.PROBE,
    gpu_stride.PROBE,
    gpu_banks.PROBE,
    gpu_copy_async.PROBE,
    gpu_barrier.PROBE,
    gpu_atomics.PROBE,
    gpu_launch.PROBE,
    gpu_transfer.PROBE,
)
