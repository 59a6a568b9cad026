"""Results in the memory of operands that nobody reads again. Not here: where an arena puts buffers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from unistack_aot.base.symbolic import Ranges, text
from unistack_aot.base.verdict import No
from unistack_aot.mcir.canonical import closed, opened
from unistack_aot.mcir.nodes import Kernel
from unistack_aot.mcir.program import Buffer, HostIf, HostLoop, Kind, Launch, Program, Step
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.in_place import UPDATE
from unistack_aot.schedule.uses import touched
from unistack_aot.schedule.views import root_of


def reuse_memory(program: Program, ranges: Ranges) -> tuple[Program, tuple[Decision, ...]]:
    """The program with results in the memory of operands that die, wherever a kernel allows it; and each choice."""
    work = _Reuse(program.by_name(), ranges)
    steps = work.block(program.steps, frozenset())
    buffers = tuple(work.buffers[b.name] for b in program.buffers)
    return Program(program.name, buffers, steps), tuple(work.decisions)


@dataclass
class _Reuse:
    """One walk over the blocks of a program; equal questions about kernels are answered once."""

    buffers: dict[str, Buffer]
    ranges: Ranges
    decisions: list[Decision] = field(default_factory=list[Decision])
    known: dict[tuple[Kernel, str, str], Kernel | No] = field(
        default_factory=dict[tuple[Kernel, str, str], "Kernel | No"]
    )

    def block(self, steps: tuple[Step, ...], outer: frozenset[str]) -> tuple[Step, ...]:
        """One list of steps; `outer` are the owners of memory that other steps use."""
        result: list[Step] = []
        host = [s for s in steps if not isinstance(s, Launch)]
        held = outer | self.owners(name for s in host for name in touched(s))
        spans = self.spans(steps)
        for position, step in enumerate(steps):
            match step:
                case Launch():
                    result.append(self.launch(step, position, spans, held))
                case HostIf() | HostLoop():
                    beside = (s for k, s in enumerate(steps) if k != position)
                    used = {name for s in beside for name in touched(s)}
                    used |= touched(_emptied(step))
                    result.append(self.nested(step, outer | self.owners(used)))
                case _:
                    result.append(step)
        return tuple(result)

    def nested(self, step: HostIf | HostLoop, outer: frozenset[str]) -> Step:
        """A branch or loop with its blocks treated."""
        if isinstance(step, HostLoop):
            return replace(step, body=self.block(step.body, outer))
        then, otherwise = self.owned_in(step.then), self.owned_in(step.otherwise)
        return replace(
            step,
            then=self.block(step.then, outer | otherwise),
            otherwise=self.block(step.otherwise, outer | then),
        )

    def owned_in(self, steps: tuple[Step, ...]) -> frozenset[str]:
        """The owners of all memory that steps use."""
        return self.owners(name for s in steps for name in touched(s))

    def owners(self, names: Iterable[str]) -> frozenset[str]:
        """The buffers that own the memory of others."""
        return frozenset(root_of(self.buffers[name], self.buffers)[0] for name in names)

    def spans(self, steps: tuple[Step, ...]) -> dict[str, tuple[int, int]]:
        """First and last step of a block that use the memory of each owner."""
        spans: dict[str, tuple[int, int]] = {}
        for position, step in enumerate(steps):
            for owner in self.owners(touched(step)):
                first, _ = spans.get(owner, (position, position))
                spans[owner] = (first, position)
        return spans

    def launch(
        self,
        launch: Launch,
        position: int,
        spans: dict[str, tuple[int, int]],
        held: frozenset[str],
    ) -> Launch:
        """The launch with one of its results in the memory of an operand, if any may."""
        for result in launch.writes():
            if result not in launch.reads() and self.fresh(result, position, spans, held):
                launch = self.placed(launch, result, position, spans, held)
        return launch

    def fresh(
        self, result: str, position: int, spans: dict[str, tuple[int, int]], held: frozenset[str]
    ) -> bool:
        """Whether a result begins here and owns arena memory."""
        buffer = self.buffers[result]
        mine = buffer.kind is Kind.ARENA and buffer.alias_of is None and result not in held
        return mine and spans[result][0] == position

    def placed(
        self,
        launch: Launch,
        result: str,
        position: int,
        spans: dict[str, tuple[int, int]],
        held: frozenset[str],
    ) -> Launch:
        """The launch with `result` in the memory of the first operand that dies here and may be overwritten."""
        refused: list[str] = []
        for source in launch.reads():
            owner, _ = root_of(self.buffers[source], self.buffers)
            if not self.dies(owner, source, launch, position, spans, held):
                continue
            found = self.kernel(launch, source, result)
            if isinstance(found, No):
                refused.append(f"{source}: {found}")
                continue
            self.take(owner, source, result, refused)
            spans[owner] = (spans[owner][0], spans[result][1])
            args = tuple(name for name in launch.args if name != source)
            fresh = replace(launch, kernel=found, args=args)
            return closed(opened(fresh), fresh)
        return launch

    def dies(
        self,
        owner: str,
        source: str,
        launch: Launch,
        position: int,
        spans: dict[str, tuple[int, int]],
        held: frozenset[str],
    ) -> bool:
        """Whether nobody uses the memory of an operand after this launch, nor another operand of it."""
        if self.buffers[owner].kind is not Kind.ARENA or owner in held:
            return False
        if launch.args.count(source) > 1:
            return False
        first, last = spans[owner]
        others = self.owners(name for name in launch.args if name != source)
        return first < position == last and owner not in others

    def kernel(self, launch: Launch, source: str, result: str) -> Kernel | No:
        """The launch's kernel, finding `source` in the memory of its result."""
        names = dict(zip(launch.args, (p.name for p in launch.kernel.params), strict=True))
        key = (launch.kernel, names[source], names[result])
        if key not in self.known:
            self.known[key] = UPDATE(*key, self.ranges)
        return self.known[key]

    def take(self, owner: str, source: str, result: str, refused: list[str]) -> None:
        """Make a result, and what lies in it, an alias of an operand's memory."""
        _, start = root_of(self.buffers[source], self.buffers)
        buffer = self.buffers[result]
        for name, other in self.buffers.items():
            if other.alias_of == result:
                moved = other.offset + start
                self.buffers[name] = replace(other, alias_of=owner, offset=moved)
        self.buffers[result] = replace(buffer, alias_of=owner, offset=start)
        size = text(buffer.elements * buffer.dtype.bytes)
        because = (
            f"nobody reads {source} again, and each element is read before it is overwritten: "
            f"{size} bytes less at once"
        )
        self.decisions.append(
            Decision("in-place", result, f"in the memory of {source}", because, tuple(refused))
        )


def _emptied(step: HostIf | HostLoop) -> Step:
    """A branch or loop without its blocks."""
    return (
        replace(step, body=())
        if isinstance(step, HostLoop)
        else replace(step, then=(), otherwise=())
    )
