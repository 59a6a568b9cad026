"""Kernel fusion: which neighbours of a program become one kernel, in which order, and the record of each.

Every fusion saves the store and loads of one far buffer; limits keep kernels small. Not here: the fusions
themselves (inlining.py, epilogues.py, row_joins.py, recompute.py), tiles, layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from unistack_aot.base.symbolic import Ranges, text
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.hw.machine import Machine
from unistack_aot.ir.scalar import Scalar, postorder
from unistack_aot.mcir.program import (
    Buffer,
    HostIf,
    HostLoop,
    Kind,
    Launch,
    Program,
    Step,
)
from unistack_aot.mcir.transform import all_loads, map_store
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.epilogues import EPILOGUE
from unistack_aot.schedule.inlining import INLINE
from unistack_aot.schedule.kernel_facts import constant_like, contracts, evaluations, folds, size
from unistack_aot.schedule.recompute import RECOMPUTE, weigh
from unistack_aot.schedule.row_joins import JOIN_ROWS
from unistack_aot.schedule.uses import UseTable, cost, is_movement, touched

MOST_PARAMS = 24  # kernels beyond this spend their registers on addresses
MOST_NODES = 400  # scalar nodes per kernel; larger ones take compilers minutes
FEW_NODES = 64  # of a kernel that must hold few values at once: of two registers each, half of what a thread can have
CHEAP = 4.0  # operations that are cheaper to repeat than to store and load


@dataclass
class Fuser:
    """One block of steps under fusion."""

    buffers: dict[str, Buffer]
    ranges: Ranges
    machine: Machine | None
    decisions: list[Decision]
    uses: UseTable
    small: frozenset[str]

    def run(self) -> tuple[Step, ...]:
        """All fusions, in the order that leaves most for the later ones."""
        self.sweep(self.extend)
        self.sweep(self.inline)
        self.sweep(self.extend)
        self.sweep(self.join_rows)
        self.sweep(self.extend)
        if self.machine is not None:
            self.sweep(self.recompute)
        return self.uses.left()

    def sweep(self, fusion: Callable[[int, Launch], None]) -> None:
        """Offer every launch, in order, to a fusion."""
        for position in range(len(self.uses)):
            launch = self.uses.launch(position)
            if launch is not None:
                fusion(position, launch)

    def inline(self, position: int, launch: Launch) -> None:
        """Replace loads of a map's result by the map's expression in every reader, if all agree."""
        if len(launch.writes()) != 1 or map_store(launch.kernel) is None:
            return
        (result,) = launch.writes()
        readers = self.uses.readers(result)
        if not readers or not self.private(result):
            return
        fresh: dict[int, Launch] = {}
        for place in readers:
            reader = self.uses.launch(place)
            if reader is None or not self.fits(launch, reader):
                return
            if not pays_inside(launch, reader, result, len(readers)):
                return
            found = INLINE(launch, reader, result)
            if isinstance(found, No):
                return
            fresh[place] = found
        chosen = f"{len(readers)} reader(s) compute it in place"
        self.apply("fuse-inline", position, fresh, (result,), chosen)

    def extend(self, position: int, launch: Launch) -> None:
        """Apply the only reader of a result, a map over the same indices, before the result is stored."""
        if len(launch.writes()) != 1:
            return
        (result,) = launch.writes()
        place = self.uses.only_reader(result)
        reader = None if place is None else self.uses.launch(place)
        if place is None or reader is None or not self.private(result):
            return
        if map_store(launch.kernel) is not None and not reader.kernel.reinterprets:
            return
        found = EPILOGUE(launch, reader, result)
        if isinstance(found, No) or size(found.kernel) > self.most(launch, reader):
            return
        chosen = f"applied before the store of {reader.writes()[0]}"
        self.apply("fuse-epilogue", position, {place: found}, (result,), chosen)

    def join_rows(self, position: int, launch: Launch) -> None:
        """Join a fold with a reader that runs over the same rows; folded values stay in registers."""
        results = launch.writes()
        if not folds(launch.kernel) or contracts(launch.kernel):
            return
        if not all(self.private(r) for r in results):
            return
        readers = sorted({place for r in results for place in self.uses.readers(r)})
        if not readers:
            return
        first = readers[0]
        reader = self.uses.launch(first)
        if reader is None or contracts(reader.kernel):
            return
        keep = frozenset(r for r in results if set(self.uses.readers(r)) - {first})
        found = JOIN_ROWS(launch, reader, keep)
        if isinstance(found, No) or size(found.kernel) > self.most(launch, reader):
            return
        gone = tuple(r for r in results if r not in keep)
        chosen = f"kept in registers for {reader.writes()[0]}"
        self.apply("fuse-row", position, {first: found}, gone, chosen)

    def recompute(self, position: int, launch: Launch) -> None:
        """Compute a map again in each of its readers where the machine's numbers say that it pays."""
        found = map_store(launch.kernel)
        if self.machine is None or found is None or is_movement(found[1].value):
            return
        (result,) = launch.writes()
        places = self.uses.readers(result)
        readers = [r for r in map(self.uses.launch, places) if r is not None]
        if not readers or not self.private(result):
            return
        if not all(self.fits(launch, reader) for reader in readers):
            return
        fresh = RECOMPUTE(launch, readers, result, self.machine, self.ranges)
        if isinstance(fresh, No):
            return
        because = str(weigh(launch, readers, result, self.machine, self.ranges))
        chosen = f"{len(readers)} kernel(s) that read it compute it again"
        self.apply(
            "recompute", position, dict(zip(places, fresh, strict=True)), (result,), chosen, because
        )

    def fits(self, producer: Launch, reader: Launch) -> Yes | No:
        """Whether one kernel may hold a map and its reader."""
        return fits_inside(producer, reader, self.most(producer, reader))

    def most(self, *launches: Launch) -> int:
        """How many scalar nodes the kernel may have that two launches become."""
        few = any(not self.small.isdisjoint(launch.origins) for launch in launches)
        return FEW_NODES if few else MOST_NODES

    def private(self, buffer: str) -> bool:
        """Whether only launches of this block use a buffer, and its memory is ours."""
        return self.buffers[buffer].kind is Kind.ARENA and buffer not in self.uses.outside

    def apply(
        self,
        kind: str,
        position: int,
        fresh: dict[int, Launch],
        gone: Sequence[str],
        chosen: str,
        because: str = "",
    ) -> None:
        """Put the fused launches in place, and record each buffer that is gone: why, or the far bytes it took."""
        launch = self.uses.launch(position)
        assert launch is not None
        for place, found in fresh.items():
            self.uses.replace(place, found)
        self.uses.replace(position, None)
        into = tuple(name for found in fresh.values() for name in found.writes())
        for result in gone:
            buffer = self.buffers[result]
            saved = text(buffer.elements * buffer.dtype.bytes * 2)
            where = ", ".join(launch.origins[:3]) or result
            why = because or f"saves {saved} far bytes"
            self.decisions.append(Decision(kind, where, chosen, why, value=result, into=into))


def pays_inside(producer: Launch, reader: Launch, result: str, readers: int) -> Yes | No:
    """Whether recomputing a map inside a reader costs less than storing it."""
    found = map_store(producer.kernel)
    assert found is not None
    _, store = found
    moves = is_movement(store.value)
    if contracts(reader.kernel) and not moves:
        return No("a contraction would recompute it for every product")
    if readers > 1 and not moves and not constant_like(store.value):
        return No("several readers would repeat its arithmetic")
    repeats = evaluations(reader, result)
    if repeats > 1.01 and not moves and cost(store.value) * (repeats - 1) > CHEAP:
        return No("the reader loads it several times")
    if _gathers(producer) and folds(reader.kernel):
        return No("its access pattern is better paid once")
    return YES


def fits_inside(producer: Launch, reader: Launch, most: int) -> Yes | No:
    """Whether one kernel of up to `most` scalar nodes may hold a map and its reader."""
    found = map_store(producer.kernel)
    assert found is not None
    value = found[1].value
    if reader.kernel.reinterprets and not is_movement(value):
        return No("the reader costs nothing as a view")
    if len(reader.args) + len(producer.args) - 2 > MOST_PARAMS:
        return No("too many buffers in one kernel")
    if sum(1 for _ in postorder(value)) + size(reader.kernel) > most:
        return No("the kernel would grow too large")
    return YES


def _gathers(launch: Launch) -> bool:
    """Whether a launch reads at places that depend on data."""
    loads = all_loads(launch.kernel.body)
    return any(isinstance(entry, Scalar) for load in loads for entry in load.index)


def fuse(
    program: Program,
    ranges: Ranges,
    machine: Machine | None = None,
    small: frozenset[str] = frozenset(),
) -> tuple[Program, tuple[Decision, ...]]:
    """Fuse within every block of steps; without a machine nothing is recomputed that several kernels read.

    What the model's nodes `small` become stays small, so that few values live at once.
    """
    decisions: list[Decision] = []
    block = Block(program.by_name(), ranges, machine, decisions, small)
    steps = block.fused(program.steps, set())
    return Program(program.name, program.buffers, steps), tuple(decisions)


@dataclass(frozen=True, slots=True)
class Block:
    """What the fusion of a block of steps needs, and of the blocks inside it."""

    buffers: dict[str, Buffer]
    ranges: Ranges
    machine: Machine | None
    decisions: list[Decision]
    small: frozenset[str]

    def fused(self, steps: tuple[Step, ...], outer: set[str]) -> tuple[Step, ...]:
        """The steps after fusion; `outer` are buffers that steps around the block use."""
        inner: list[Step] = []
        for position, step in enumerate(steps):
            match step:
                case HostIf():
                    others = _touched_elsewhere(steps, position) | outer
                    then = self.fused(step.then, others)
                    inner.append(
                        replace(step, then=then, otherwise=self.fused(step.otherwise, others))
                    )
                case HostLoop():
                    held = (
                        _touched_elsewhere(steps, position)
                        | outer
                        | touched(replace(step, body=()))
                    )
                    inner.append(replace(step, body=self.fused(step.body, held)))
                case _:
                    inner.append(step)
        uses = UseTable(inner, outer)
        fuser = Fuser(self.buffers, self.ranges, self.machine, self.decisions, uses, self.small)
        return fuser.run()


def _touched_elsewhere(steps: tuple[Step, ...], position: int) -> set[str]:
    """Buffers that the other steps of a block use."""
    return set[str]().union(*(touched(s) for k, s in enumerate(steps) if k != position))
