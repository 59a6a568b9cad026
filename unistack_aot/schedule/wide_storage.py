"""Which buffers of narrow floats are held in f32 where a machine computes in f32 only.

Buffers that only launches touch change their type; operands of products and attention that must keep theirs (inputs,
outputs, values that loops carry) are read through a copy. Everything else converts what it reads. Not here: the
launches with such buffers (storing_wide.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unistack_aot.aicf.op import ArrayData
from unistack_aot.base.dtypes import DType, f32
from unistack_aot.mcir.canonical import opened
from unistack_aot.mcir.program import Buffer, HostIf, HostLoop, Kind, Launch, Program, Step
from unistack_aot.schedule.attention import AttentionSite, find_attention
from unistack_aot.schedule.contraction import Site, find_site
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.layouts import relayout
from unistack_aot.schedule.storing_wide import STORE_WIDE
from unistack_aot.schedule.uses import touched

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Widened:
    """A program that computes on f32 buffers; `narrow` is the type to which the values of some of them are rounded."""

    program: Program
    constants: Arrays
    narrow: Mapping[str, DType]
    decisions: tuple[Decision, ...]


def widen_storage(program: Program, constants: Mapping[str, NDArray[Any]]) -> Widened:
    """The program with narrow floats in f32 wherever kernels multiply or only kernels look."""
    narrow = {b.name: b.dtype for b in program.buffers if b.dtype.is_narrow}
    if not narrow:
        return Widened(program, dict(constants), {}, ())
    work = _Widener(program.by_name(), dict(constants), _free_buffers(program) & narrow.keys())
    steps = work.block(program.steps)
    decisions = tuple(
        Decision("storage", name, "f32", f"computed in f32; its values are rounded to {dtype}")
        for name, dtype in work.narrow.items()
    )
    done = Program(program.name, tuple(work.buffers.values()), steps)
    return Widened(done, work.constants, work.narrow, decisions)


def _free_buffers(program: Program) -> set[str]:
    """Arena buffers that only launches touch and set, with all that share their memory."""
    held = {b.name for b in program.buffers if b.kind is not Kind.ARENA}
    together: list[set[str]] = [{b.name, b.alias_of} for b in program.buffers if b.alias_of]
    for launch in program.launches():
        if launch.kernel.reinterprets:
            together.append(set(launch.args))
        held |= {name for name in launch.args if not STORE_WIDE.check((launch,), {name})}

    def visit(steps: tuple[Step, ...]) -> None:
        for step in steps:
            match step:
                case Launch():
                    pass
                case HostIf():
                    held.add(step.condition)
                    visit(step.then)
                    visit(step.otherwise)
                case HostLoop():
                    held.update(touched(replace(step, body=())))
                    visit(step.body)
                case _:
                    held.update(touched(step))

    visit(program.steps)
    size = -1
    while size < len(held):
        size = len(held)
        for group in together:
            if group & held:
                held |= group
    return {b.name for b in program.buffers} - held


@dataclass
class _Widener:
    """Buffers and constants under way; `narrow` grows by every buffer that is held in f32."""

    buffers: dict[str, Buffer]
    constants: Arrays
    free: set[str]
    narrow: dict[str, DType] = field(default_factory=dict[str, DType])

    def __post_init__(self) -> None:
        for name in sorted(self.free):
            self.narrow[name] = self.buffers[name].dtype
            self.buffers[name] = replace(self.buffers[name], dtype=f32)

    def block(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The steps over wide buffers; copies hold until their source is written."""
        copies: dict[str, str] = {}
        result: list[Step] = []
        for step in steps:
            match step:
                case Launch():
                    result += self.launch(step, copies)
                case HostIf():
                    then, otherwise = self.block(step.then), self.block(step.otherwise)
                    result.append(replace(step, then=then, otherwise=otherwise))
                case HostLoop():
                    result.append(replace(step, body=self.block(step.body)))
                case _:
                    result.append(step)
            for name in copies.keys() & (
                set(step.writes()) if isinstance(step, Launch) else touched(step)
            ):
                del copies[name]
        return tuple(result)

    def launch(self, launch: Launch, copies: dict[str, str]) -> list[Step]:
        """The launch over f32, after copies of the operands that it multiplies."""
        before: list[Step] = []
        names: dict[str, str] = {}
        for name in _multiplied(launch):
            buffer = self.buffers[name]
            if not buffer.dtype.is_narrow or name in launch.writes():
                continue
            if buffer.kind is Kind.CONSTANT:
                names[name] = self.constant(buffer)
                continue
            if name not in copies:
                copies[name] = self.copy(buffer)
                before.append(relayout(buffer, self.buffers[copies[name]]))
            names[name] = copies[name]
        args = tuple(names.get(arg, arg) for arg in launch.args)
        renamed = replace(launch, args=args)
        wide = {arg for arg in args if arg in self.narrow}
        if not wide:
            return [*before, renamed]
        return [*before, *STORE_WIDE.sure((renamed,), wide)]

    def copy(self, buffer: Buffer) -> str:
        """A fresh f32 buffer for the values of one that keeps its type."""
        name = f"{buffer.name}_wide{len(self.buffers)}"
        self.buffers[name] = Buffer(name, f32, buffer.shape)
        self.narrow[name] = buffer.dtype
        return name

    def constant(self, buffer: Buffer) -> str:
        """A constant with the same values in f32."""
        assert buffer.constant is not None
        data = ArrayData.of(self.constants[buffer.constant].astype(np.float32))
        name = f"{buffer.name}_wide"
        self.buffers[name] = replace(buffer, name=name, dtype=f32, constant=data.digest)
        self.constants[data.digest] = data.array
        self.narrow[name] = buffer.dtype
        return name


def _multiplied(launch: Launch) -> tuple[str, ...]:
    """The operands of a launch's products: what tile instructions and vectors of window sums read."""
    kernel = opened(launch)
    site, heads = find_site(kernel), find_attention(kernel)
    if isinstance(site, Site):
        found = (site.a.load, site.b.load)
    elif isinstance(heads, AttentionSite):
        found = (heads.q, heads.k, heads.v)
    else:
        return ()
    return tuple(dict.fromkeys(load.buffer for load in found))
