"""Turns every launch into what a GPU runs: one nest per kernel, 32-bit arithmetic for narrow floats, roles."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from unistack_aot.base.symbolic import Ranges
from unistack_aot.hw.machine import Machine
from unistack_aot.mcir.canonical import canonical, closed, opened
from unistack_aot.mcir.nodes import Kernel
from unistack_aot.mcir.program import Buffer, HostIf, HostLoop, Launch, Program, Step
from unistack_aot.base.verdict import No
from unistack_aot.schedule.attention import find_attention
from unistack_aot.schedule.attention_blocks import choose_attention
from unistack_aot.schedule.block_tiles import block_tiled, choose_tile, oriented
from unistack_aot.schedule.contraction import find_site
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.many_narrow import assign_roles, stages
from unistack_aot.targets.cuda.instructions import attention_for, instructions_for
from unistack_aot.targets.cuda.narrow_floats import widened

Array = NDArray[Any]


@dataclass
class Legalizer:
    """One program on its way to a GPU; equal kernels are decided once."""

    ranges: Ranges
    machine: Machine
    buffers: dict[str, Buffer]
    constants: dict[str, Array]
    precision: str
    decisions: list[Decision] = field(default_factory=list)
    decided: dict[Kernel, Kernel] = field(default_factory=dict)

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Every step of a block."""
        result: list[Step] = []
        for step in steps:
            match step:
                case Launch():
                    result.extend(self.launch(step))
                case HostIf():
                    then, otherwise = self.steps(step.then), self.steps(step.otherwise)
                    result.append(replace(step, then=then, otherwise=otherwise))
                case HostLoop():
                    result.append(replace(step, body=self.steps(step.body)))
                case _:
                    result.append(step)
        return tuple(result)

    def launch(self, launch: Launch) -> list[Launch]:
        """The launches that one launch becomes."""
        parts = [closed(part, launch) for part in stages(opened(launch))]
        return [self.roles(part) for part in parts]

    def roles(self, launch: Launch) -> Launch:
        """Loop roles of a launch of one nest."""
        if launch.kernel not in self.decided:
            kernel = launch.kernel
            found = self.attention(kernel)
            if isinstance(found, No):
                found = self.contraction(kernel)
            if isinstance(found, No):
                found, decision = assign_roles(widened(kernel), self.ranges, self.machine)
                self.decisions.append(decision)
            self.decided[launch.kernel] = canonical(found)
        return replace(launch, kernel=self.decided[launch.kernel])

    def attention(self, kernel: Kernel) -> Kernel | No:
        """An attention over blocks of queries, if some block fits."""
        site = find_attention(kernel)
        if isinstance(site, No):
            return site
        blocks = attention_for(site.q.dtype, self.precision, self.machine)
        chosen = choose_attention(kernel, site, blocks, self.machine, self.ranges)
        if isinstance(chosen, No):
            return chosen
        self.decisions.append(chosen[1])
        return chosen[0]

    def contraction(self, kernel: Kernel) -> Kernel | No:
        """A contraction over near tiles, if some tile instruction pays."""
        site = find_site(kernel)
        if isinstance(site, No):
            return site
        site = oriented(kernel, site, self.ranges)
        operands = (site.a.load.dtype, site.b.load.dtype)
        tiles = instructions_for(operands, site.acc.dtype, self.precision, self.machine)
        chosen = choose_tile(kernel, site, tiles, self.machine, self.ranges)
        if isinstance(chosen, No):
            return chosen
        tile, decision = chosen
        self.decisions.append(decision)
        tail = widened(kernel.with_body(site.tail)).body
        return block_tiled(kernel, replace(site, tail=tail), tile, self.machine, self.ranges)


def legalize(
    program: Program,
    constants: dict[str, Array],
    ranges: Ranges,
    machine: Machine,
    precision: str,
) -> tuple[Program, dict[str, Array], tuple[Decision, ...]]:
    """The whole program for one generation, its constants, and why."""
    work = Legalizer(ranges, machine, program.by_name(), dict(constants), precision)
    steps = work.steps(program.steps)
    done = Program(program.name, tuple(work.buffers.values()), steps)
    return done, work.constants, tuple(work.decisions)
