"""Machine: what a scheduler may ask about hardware, answered from one property map.

Questions are about capabilities and costs, never about a brand. Levels are the scheduler's spaces
(`far`, `near`, `reg`) or a machine's own memories (`l1`, `l2`, `l3`, `dram`, `shared`). Every
answer is a Property that names the map entry it came from, so that a decision record can cite it.
Not here: how long a kernel takes (roofline.py), how many groups fit (occupancy.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.hw.catalogue import map_for_arch
from unistack_aot.hw.property import Property, derived
from unistack_aot.hw.propmap import BadPropertyMap, PropertyMap


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as its property map describes it; immutable, so two equal maps give equal
    decisions.
    """

    map: PropertyMap

    @property
    def id(self) -> str:
        """Short name of the map, for decision records."""
        return self.map.id

    @property
    def is_wide(self) -> bool:
        """True where lanes run in lockstep groups with a managed near memory (a GPU), False for
        cores with caches.
        """
        return self.map.kind == "gpu"

    @property
    def parallel_units(self) -> int:
        """Number of units that run groups independently: multiprocessors or cores."""
        return self._count("units.count")

    @property
    def lanes(self) -> int:
        """Lanes that execute one instruction together: a warp, or the f32 elements of a vector
        register.
        """
        return self._count("lanes")

    @property
    def vector_bytes(self) -> int:
        """Widest load or store of one thread, in bytes."""
        return self._count("vector.bytes")

    @property
    def max_threads(self) -> int:
        """Most threads in one group (1 on a CPU: a group is one core's task)."""
        return self._count("group.threads") if self.is_wide else 1

    @property
    def resident_threads(self) -> int:
        """Most threads one unit holds at once (1 on a CPU)."""
        return self._count("units.threads") if self.is_wide else 1

    @property
    def registers(self) -> int:
        """32-bit registers of a unit on a GPU, vector registers of a thread on a CPU."""
        return self._count("units.registers") if self.is_wide else self._count("vector.registers")

    @property
    def registers_per_thread(self) -> int:
        """Most registers one thread may name (32-bit on a GPU, vector registers on a CPU)."""
        return (
            self._count("units.registers.thread")
            if self.is_wide
            else self._count("vector.registers")
        )

    @property
    def shared_bytes_per_group(self) -> int:
        """Managed near memory one group may claim, in bytes (0 on a CPU, whose near level is a
        cache).
        """
        return self._count("shared.capacity.group") if self.is_wide else 0

    @property
    def shared_bytes_per_unit(self) -> int:
        """Managed near memory of a unit, in bytes (0 on a CPU)."""
        return self._count("shared.capacity") if self.is_wide else 0

    @property
    def line_bytes(self) -> int:
        """Bytes of one cache line."""
        return self._count("l1.line")

    def memory(self, level: str) -> str:
        """Return the machine's own name of `level` ("far" -> "dram"); other names pass through."""
        return self.map.levels.get(level, level)

    def can(self, capability: str, *levels: str) -> bool:
        """True when the machine has `capability`; with levels, when it has it between exactly
        these.
        """
        found = self.map.capabilities.get(capability)
        return found is not None and (not levels or found == levels)

    def latency(self, level: str) -> Property:
        """Return the time of one dependent access to `level`, in seconds."""
        return self._seconds(self.map.need(f"{self.memory(level)}.latency"))

    def bandwidth(self, level: str, units: int | None = None) -> Property:
        """Return bytes per second of `level` with `units` units busy (all by default).

        Between one unit and all, private levels scale; shared ones grow linearly until they
        saturate.
        """
        memory, total = self.memory(level), self.parallel_units
        whole = self.map.get(f"{memory}.bandwidth")
        one = self.map.get(f"{memory}.bandwidth.one")
        busy = total if units is None else max(1, min(units, total))
        if one is None:
            whole = self.map.need(f"{memory}.bandwidth")
            return whole if busy == total else self._share(whole, busy)
        if whole is None:
            return derived(
                f"{memory}.bandwidth", one.value * busy, "B/s", f"{busy} private levels", one
            )
        if busy == total:
            return whole
        return (
            one if one.value * busy < whole.value and busy == 1 else self._grown(one, whole, busy)
        )

    def capacity(self, level: str) -> Property:
        """Return the bytes of `level`: per unit for near and private levels, the whole for shared
        ones.
        """
        memory = self.memory(level)
        if memory != "reg":
            return self.map.need(f"{memory}.capacity")
        if self.is_wide:
            count = self.map.need("units.registers")
            return derived("reg.capacity", count.value * 4, "B", "4 bytes each", count)
        count, width = self.map.need("vector.registers"), self.map.need("vector.bytes")
        return derived(
            "reg.capacity", count.value * width.value, "B", "registers x bytes", count, width
        )

    def bytes_in_flight(self, level: str = "far") -> Property:
        """Return the bytes that must be under way, machine-wide, to keep `level` busy: latency x
        bandwidth (Little).
        """
        wait, rate = self.latency(level), self.bandwidth(level)
        return derived(
            f"{level}.bytes_in_flight",
            wait.value * rate.value,
            "B",
            "latency x bandwidth",
            wait,
            rate,
        )

    def rate(self, instruction: str, dtype: str) -> Property:
        """Return FLOP/s of the whole machine for a tile instruction ("mma.m16n8k16") on operands of
        `dtype`.

        The map may state the exact instruction or only its engine: the longest dotted prefix it
        knows answers.
        """
        found = self.find_rate(instruction, dtype)
        if found is None:
            known = sorted(name for name, q in self.map.properties.items() if q.unit == "FLOP/s")
            raise BadPropertyMap(
                f"property map '{self.id}' has no rate of '{instruction}' on {dtype}",
                at=self.map.device,
                hint=f"known rates: {', '.join(known)}; ask can() before offering an instruction",
            )
        return found

    def find_rate(self, instruction: str, dtype: str) -> Property | None:
        """Return what rate() would, or None when the map has no such engine."""
        words = instruction.split(".")
        names = (f"{'.'.join(words[:length])}.{dtype}" for length in range(len(words), 0, -1))
        return next((q for q in map(self.map.get, names) if q is not None), None)

    def reached(self, instruction: str) -> float:
        """Return the share of an engine's peak that the best known kernels reach (1 when nobody
        measured it).
        """
        found = self.map.get(f"{instruction.split('.')[0]}.reached")
        return 1.0 if found is None else found.value

    def launch_cost(self, graph: bool = False) -> Property:
        """Return seconds added by one more kernel in a stream (or in a recorded graph when the map
        knows that).
        """
        recorded = self.map.get("launch.graph") if graph else None
        return recorded or self.map.need("launch")

    def barrier_cost(self) -> Property:
        """Return seconds of one barrier: of a group on a GPU, of all threads on a CPU."""
        found = self.map.get("barrier")
        if found is not None:
            return self._seconds(found)
        near = self.latency("near")
        return derived(
            "barrier", near.value, "s", "one near round trip: a lower bound until probed", near
        )

    def bank_cost(self, stride: int, width: int) -> Property:
        """Return cycles of one near access in which lane i touches `width` bytes at i x `stride`; 1
        cycle per full row.

        Rule of the CUDA Programming Guide: a cycle serves one word per bank; wide accesses go in
        phases of one row.
        """
        banks, word = self._count("shared.banks"), self._count("shared.bank_width")
        row = banks * word
        per_phase = max(1, min(self.lanes, row // width))
        cycles = 0
        for first in range(0, self.lanes, per_phase):
            words = {
                (lane * stride + byte) // word
                for lane in range(first, min(first + per_phase, self.lanes))
                for byte in range(0, width, min(word, width))
            }
            load = [0] * banks
            for index in words:
                load[index % banks] += 1
            cycles += max(load)
        parents = (self.map.need("shared.banks"), self.map.need("shared.bank_width"))
        return derived(
            "shared.cycles", cycles, "cycles", f"stride {stride} B, width {width} B", *parents
        )

    def sector_cost(self, stride: int, width: int, offset: int = 0) -> Property:
        """Return how many far sectors one access moves when lane i touches `width` bytes at offset
        + i x `stride`.
        """
        sector = self._count("l1.sector")
        touched = {
            (offset + lane * stride + byte) // sector
            for lane in range(self.lanes)
            for byte in {*range(0, width, sector), width - 1}
        }
        note = f"stride {stride} B, width {width} B, offset {offset} B"
        return derived("l1.sectors", len(touched), "1", note, self.map.need("l1.sector"))

    def useful_share(self, stride: int, width: int) -> float:
        """Return useful bytes / moved bytes of one strided far access (1 is ideal)."""
        moved = self.sector_cost(stride, width).value * self._count("l1.sector")
        distinct = self.lanes * min(width, abs(stride)) if stride else width
        return min(1.0, distinct / moved)

    def _count(self, name: str) -> int:
        return int(self.map.need(name).value)

    def _seconds(self, quantity: Property) -> Property:
        if quantity.unit != "cycles":
            return quantity
        clock = self.map.need("clock")
        return derived(
            quantity.name, quantity.value / clock.value, "s", "cycles / clock", quantity, clock
        )

    def _share(self, whole: Property, busy: int) -> Property:
        # One unit of a GPU can draw more than its even share; twice is what one block per unit
        # reaches on the maps we have.
        part = min(whole.value, whole.value * 2.0 * busy / self.parallel_units)
        return derived(
            whole.name,
            part,
            "B/s",
            f"{busy} of {self.parallel_units} units, twice the even share",
            whole,
        )

    def _grown(self, one: Property, whole: Property, busy: int) -> Property:
        return derived(
            whole.name, min(one.value * busy, whole.value), "B/s", f"{busy} units", one, whole
        )


def machine_for_arch(arch: str) -> Machine:
    """Return the machine a compilation for `arch` assumes when the user names no map."""
    return Machine(map_for_arch(arch).map)
