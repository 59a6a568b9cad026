"""Recomputation of a map in every kernel that reads it, where that beats the bytes of storing and loading.

Bytes are counted by MCIR, at usual sizes; both sides become time by a machine's numbers. Not here: maps that are
inlined whatever the machine (fusion.py), because they cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unistack_aot.base.symbolic import Ranges, linear_split
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.hw.catalogue import builtin_maps
from unistack_aot.hw.machine import Machine
from unistack_aot.hw.property import Property
from unistack_aot.ir.scalar import Scalar, loads
from unistack_aot.mcir.counts import traffic
from unistack_aot.mcir.nodes import Fold, Kernel
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import all_loads, map_store, walk
from unistack_aot.schedule.cost import holding
from unistack_aot.schedule.decision import microseconds
from unistack_aot.schedule.inlining import INLINE
from unistack_aot.schedule.kernel_facts import contracts, evaluations, usual
from unistack_aot.schedule.operator import Kernels, Operator, launch_of
from unistack_aot.schedule.uses import cost


@dataclass(frozen=True, slots=True)
class Balance:
    """What recomputation saves and repeats: far bytes at a bandwidth, operations at a rate per second."""

    saved: int
    repeated: float
    bandwidth: Property
    rate: Property

    @property
    def gain(self) -> float:
        """Seconds that the saved bytes take."""
        return self.saved / self.bandwidth.value

    @property
    def price(self) -> float:
        """Seconds that the repeated operations take; the rate counts a fused multiply-add as two."""
        return self.repeated / (self.rate.value / 2)

    def __str__(self) -> str:
        bytes_ = f"{self.saved} far bytes, {microseconds(self.gain)} at {self.bandwidth.name}"
        again = f"{self.repeated:.0f} operations, {microseconds(self.price)} at half of {self.rate.name}"
        return f"saves {bytes_}; repeats {again}"


def can_recompute(
    producer: Launch, readers: Sequence[Launch], result: str, machine: Machine, ranges: Ranges
) -> Yes | No:
    """Whether every reader may compute the elements it needs, and all of them together gain by it."""
    found = map_store(producer.kernel)
    if found is None:
        return No("the producer is not a map")
    for reader in readers:
        if isinstance(refusal := INLINE.check(producer, reader, result), No):
            return refusal
        if _per_product(reader, result):
            return No("a contraction would recompute it for every product")
    if not _along_rows(producer.kernel):
        return No("its operands are not read along its rows: that is better paid once")
    balance = weigh(producer, readers, result, machine, ranges)
    if balance.saved <= 0:
        return No("the readers would load more than they save")
    if balance.price >= balance.gain:
        return No(f"it {balance}")
    return YES


def recomputed(
    producer: Launch, readers: Sequence[Launch], result: str, machine: Machine, ranges: Ranges
) -> tuple[Launch, ...]:
    """Each of several readers computes the producer's map in place, where that beats storing and loading it.

    before:
        kernel shift(x: f32[N, 8] far) -> t: f32[N, 8] far {
          for i in N, j in 8 {
            t[i, j] = max(x[i, j] * 0.5 + 1.0, 0.0)
          }
        }
        kernel sum(t: f32[N, 8] far) -> s: f32[N] far {
          for i in N {
            a = fold sum over j in 8 of t[i, j]
            s[i] = a
          }
        }
        kernel square(t: f32[N, 8] far) -> y: f32[N, 8] far {
          for i in N, j in 8 {
            y[i, j] = t[i, j] * t[i, j]
          }
        }
    after:
        kernel k0(x0: f32[N, 8] far) -> y0: f32[N] far {
          for i0 in N {
            i2 = fold sum over i1 in 8 of max(x0[i0, i1] * 0.5 + 1.0, 0.0)
            y0[i0] = i2
          }
        }

        kernel k1(x0: f32[N, 8] far) -> y0: f32[N, 8] far {
          for i0 in N, i1 in 8 {
            $0 = max(x0[i0, i1] * 0.5 + 1.0, 0.0)
            y0[i0, i1] = $0 * $0
          }
        }
    """
    return tuple(INLINE.sure(producer, reader, result) for reader in readers)


def weigh(
    producer: Launch, readers: Sequence[Launch], result: str, machine: Machine, ranges: Ranges
) -> Balance:
    """Both sides of a recomputation that is possible, in numbers.

    On cores a small result lies in a cache between its store and its loads, so that cache's bandwidth counts.
    """
    found = map_store(producer.kernel)
    assert found is not None
    after = recomputed(producer, readers, result, machine, ranges)
    saved = _bytes((producer, *readers), ranges) - _bytes(after, ranges)
    param = next(
        p for p, a in zip(producer.kernel.params, producer.args, strict=True) if a == result
    )
    elements = usual(param.layout.elements(param.shape), ranges)
    again = sum(evaluations(reader, result, ranges) for reader in readers) - 1
    repeated = max(0.0, again) * elements * cost(found[1].value)
    level = "far" if machine.is_wide else holding(machine, elements * param.dtype.bytes)
    return Balance(saved, repeated, machine.bandwidth(level), machine.rate("fma", "f32"))


def _per_product(reader: Launch, result: str) -> bool:
    """Whether a contraction of the reader loads the result for its products, not only in its epilogue."""
    if not contracts(reader.kernel):
        return False
    names = {p.name for p, a in zip(reader.kernel.params, reader.args, strict=True) if a == result}
    folds = tuple(stmt for stmt in walk(reader.kernel.body) if isinstance(stmt, Fold))
    return any(load.buffer in names for load in all_loads(folds))


def _along_rows(kernel: Kernel) -> bool:
    """Whether all operands are read at neighbouring places, or at one, where results are neighbours."""
    found = map_store(kernel)
    assert found is not None
    loops, store = found
    if not loops:
        return True
    last = loops[-1].var
    for load in loads(store.value):
        param = kernel.param(load.buffer)
        index = tuple(entry for entry in load.index if not isinstance(entry, Scalar))
        if len(index) < len(load.index):
            return False
        parts = linear_split(param.layout.offset(param.shape, index), last)
        if parts is None or parts[0] not in (0, 1):
            return False
    return True


def _bytes(launches: Iterable[Launch], ranges: Ranges) -> int:
    return sum(usual(n, ranges) for launch in launches for n in traffic(launch.kernel).values())


def _example(kernels: Kernels) -> Kernels | No:
    producer, *readers = map(launch_of, kernels)
    machine = Machine(next(iter(builtin_maps().values())))
    found = RECOMPUTE(producer, readers, "t", machine, {})
    return found if isinstance(found, No) else tuple(launch.kernel for launch in found)


RECOMPUTE = Operator("recompute", can_recompute, recomputed, _example)
