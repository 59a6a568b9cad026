"""All probes, one folder each: question, kernel, sweep, fit, plot. Listed in the order in which a
run asks them.
"""

from __future__ import annotations

from probe_suite.probe import Probe
from probe_suite.probes import (
    cpu_bandwidth,
    cpu_clock,
    cpu_fma,
    cpu_gather,
    cpu_latency,
    cpu_query,
    cpu_stride,
    cpu_threads,
)

# Facts first: later probes size their sweeps by them.
PROBES: tuple[Probe, ...] = (
    cpu_query.PROBE,
    cpu_clock.PROBE,
    cpu_fma.PROBE,
    cpu_latency.PROBE,
    cpu_bandwidth.PROBE,
    cpu_stride.PROBE,
    cpu_gather.PROBE,
    cpu_threads.PROBE,
)
