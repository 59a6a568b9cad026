"""Seconds of work on a GPU's stream, between two events. Not here: what runs there (cuda.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pycuda.driver

driver: Any = pycuda.driver  # a C++ module without type information
# Bytes that take a bus of 12 to 60 GB/s longer than the host takes for a launch and two events.
_LEAD = 1 << 20


class Events:
    """Times work that the host enqueues while the GPU is kept waiting by a copy.

    Without the copy the time between two events would hold the host's own time for a launch. It passes no kernel and
    touches little of the caches.
    """

    def __init__(self) -> None:
        self._from = driver.pagelocked_zeros(_LEAD, np.uint8)
        self._to = driver.mem_alloc(_LEAD)

    def seconds(self, stream: Any, work: Callable[[], None]) -> float:
        """What the work enqueued by `work` takes; waits for it."""
        before, after = driver.Event(), driver.Event()
        driver.memcpy_htod_async(self._to, self._from, stream)
        before.record(stream)
        work()
        after.record(stream)
        after.synchronize()
        return before.time_till(after) * 1e-3
