"""The traffic of emulated launches, field by field. Not here: how it is counted (driver/)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GlobalTraffic:
    """Accesses of one kind to device memory: warp requests, 32-byte sectors, bytes asked for."""

    requests: int
    sectors: int
    bytes: int

    @property
    def sectors_per_request(self) -> float:
        """Sectors that an average request touches; 4 for 32 lanes x 4 bytes side by side."""
        return self.sectors / self.requests if self.requests else 0.0

    def __add__(self, other: GlobalTraffic) -> GlobalTraffic:
        return GlobalTraffic(
            self.requests + other.requests, self.sectors + other.sectors, self.bytes + other.bytes
        )

    @property
    def efficiency(self) -> float:
        """Bytes asked for over bytes of the sectors moved: 1.0 when nothing is fetched in vain."""
        return self.bytes / (32 * self.sectors) if self.sectors else 1.0


@dataclass(frozen=True, slots=True)
class SharedTraffic:
    """Accesses of one kind to shared memory: warp requests, wavefronts taken and needed, bytes."""

    requests: int
    wavefronts: int
    ideal: int
    bytes: int

    def __add__(self, other: SharedTraffic) -> SharedTraffic:
        return SharedTraffic(
            self.requests + other.requests,
            self.wavefronts + other.wavefronts,
            self.ideal + other.ideal,
            self.bytes + other.bytes,
        )

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond the least possible: what bank conflicts cost."""
        return self.wavefronts - self.ideal


@dataclass(frozen=True, slots=True)
class LaunchCounters:
    """What a checked kernel did in one launch."""

    kernel: str
    load: GlobalTraffic
    store: GlobalTraffic
    copy_async: GlobalTraffic
    shared_load: SharedTraffic
    shared_store: SharedTraffic
    shared_ldmatrix: SharedTraffic
    shared_copy: SharedTraffic
    atomics: int
    barriers: int
    mma: int
    unique_read: int
    unique_written: int
    blocks: int
    threads_per_block: int
    shared_bytes: int

    @property
    def read(self) -> GlobalTraffic:
        """All reads of device memory: loads, and copies into shared memory."""
        return self.load + self.copy_async

    @property
    def shared(self) -> SharedTraffic:
        """All kinds of shared-memory access together."""
        return self.shared_load + self.shared_store + self.shared_ldmatrix + self.shared_copy

    @property
    def conflicts(self) -> int:
        """Bank conflicts of all kinds of shared-memory access together."""
        return self.shared.conflicts


@dataclass(frozen=True, slots=True)
class KernelCounters:
    """What all launches of a kernel did together."""

    kernel: str
    launches: int
    read: GlobalTraffic
    written: GlobalTraffic
    shared: SharedTraffic
    atomics: int
    barriers: int
    mma: int


def by_kernel(launches: Iterable[LaunchCounters]) -> tuple[KernelCounters, ...]:
    """Sums by kernel, in the order of first launches."""
    sums: dict[str, KernelCounters] = {}
    for each in launches:
        known = sums.get(each.kernel) or KernelCounters(each.kernel, 0, *_NOTHING, 0, 0, 0)
        sums[each.kernel] = KernelCounters(
            each.kernel,
            known.launches + 1,
            known.read + each.read,
            known.written + each.store,
            known.shared + each.shared,
            known.atomics + each.atomics,
            known.barriers + each.barriers,
            known.mma + each.mma,
        )
    return tuple(sums.values())


_NOTHING = (GlobalTraffic(0, 0, 0), GlobalTraffic(0, 0, 0), SharedTraffic(0, 0, 0, 0))


FIELD_COUNT = 3 * 3 + 4 * 4 + 8


def decode(kernel: str, values: Iterator[int]) -> LaunchCounters:
    """Counters from the driver's flat list of numbers, in the order of its struct Totals."""

    def device() -> GlobalTraffic:
        return GlobalTraffic(next(values), next(values), next(values))

    def shared() -> SharedTraffic:
        return SharedTraffic(next(values), next(values), next(values), next(values))

    return LaunchCounters(
        kernel,
        device(),
        device(),
        device(),
        shared(),
        shared(),
        shared(),
        shared(),
        *(next(values) for _ in range(8)),
    )
