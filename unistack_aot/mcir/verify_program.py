"""What a program must keep: buffers with one writer each, aliases inside, launches that fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, Ranges, bounds, symbols, text
from unistack_aot.mcir.formula_text import dims, label
from unistack_aot.mcir.nodes import Access, Kernel
from unistack_aot.mcir.program import (
    Buffer,
    HostCopy,
    HostIf,
    HostLoop,
    HostRefuse,
    Kind,
    Launch,
    Program,
    Step,
)
from unistack_aot.mcir.stages.stage import Stage
from unistack_aot.mcir.text import kernel_names, layout_text
from unistack_aot.mcir.verify import verify_kernel

GIVEN = (Kind.INPUT, Kind.CONSTANT)


def verify_program(
    program: Program, stage: Stage | None = None, ranges: Ranges | None = None
) -> None:
    """Check a program and its kernels; IRError that shows the step or statement with its neighbours."""
    known = dict(ranges or {})
    names = kernel_names(program)
    work = _Checker(program, program.by_name(), names, known)
    work.buffers_hold()
    symbols_of_inputs = {n for b in program.buffers for d in b.shape for n in symbols(d)}
    every = frozenset(symbols_of_inputs | known.keys())
    work.steps(program.steps)
    for buffer in program.buffers:
        if buffer.kind is Kind.OUTPUT and not work.readable(buffer.name):
            raise IRError(f"output {buffer.name} is never written", at=f"program {program.name}")
    for kernel, name in names.items():
        verify_kernel(kernel, stage, known, name, every)


@dataclass
class _Checker:
    """One walk over the steps; `written` are the buffers with content, by the buffer that owns the memory.

    `used` are those that a step read or wrote so far, `lost` those whose memory another one took.
    """

    program: Program
    buffers: Mapping[str, Buffer]
    names: Mapping[Kernel, str]
    ranges: Ranges
    written: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    used: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    lost: dict[str, str] = field(default_factory=dict[str, str])

    def fault(self, why: str, step: Step | None = None, block: tuple[Step, ...] = ()) -> IRError:
        """The error for a step, shown between its neighbours."""
        place = next((k for k, s in enumerate(block) if s is step), 0)
        shown = [
            f"    {'> ' if k == place else '  '}{self.line(block[k])}"
            for k in range(max(0, place - 2), min(len(block), place + 2))
        ]
        return IRError("\n".join([why, *shown]), at=f"program {self.program.name}")

    def line(self, step: Step) -> str:
        """A step in short."""
        match step:
            case Launch():
                name = self.names.get(step.kernel, "kernel")
                return f"{name}({', '.join(step.args)})  {step.label}".rstrip()
            case HostIf():
                return f"if {step.condition} {{"
            case HostLoop():
                return "loop {"
            case HostCopy():
                return f"copy {step.source} -> {step.target}"
            case HostRefuse():
                return f"refuse {step.target}"
            case _:
                assert_never(step)

    def buffers_hold(self) -> None:
        """Names are unique, constants have content, aliases lie inside their owner."""
        if len(self.buffers) != len(self.program.buffers):
            raise self.fault("two buffers have one name")
        for buffer in self.program.buffers:
            if (buffer.kind is Kind.CONSTANT) != (buffer.constant is not None):
                raise self.fault(
                    f"{buffer.name} is {buffer.kind.value}, its content: {buffer.constant}"
                )
            if buffer.alias_of is not None:
                self.inside(buffer)

    def inside(self, buffer: Buffer) -> None:
        """An alias ends where its owner's memory can hold it."""
        owner = self.buffers.get(buffer.alias_of or "")
        if owner is None or owner is buffer:
            raise self.fault(
                f"{buffer.name} is an alias of {buffer.alias_of}, which is no other buffer"
            )
        first, end = self.extent(buffer)
        room = owner.elements * owner.dtype.bytes
        if not self.surely(first) or not self.surely(room - (end - self.extent(owner)[0])):
            size = f"{text(end)} bytes end beyond the {text(room)} of {owner.name}"
            raise self.fault(f"alias {buffer.name} leaves its memory: {size}")

    def surely(self, value: Dim) -> bool:
        """Whether a value is at least 0 for all dimensions."""
        low = bounds(value, self.ranges)[0]
        return low is not None and low >= 0

    def root(self, name: str) -> str:
        """The buffer that owns the memory."""
        seen: set[str] = set()
        while (owner := self.buffers[name].alias_of) is not None:
            if name in seen:
                raise self.fault(f"{name} is an alias of itself")
            seen.add(name)
            name = owner
        return name

    def extent(self, buffer: Buffer) -> tuple[Dim, Dim]:
        """First byte and end of a buffer in its owner's memory."""
        self.root(buffer.name)
        first: Dim = 0
        each = buffer
        while each.alias_of is not None:
            first = first + each.offset * each.dtype.bytes
            each = self.buffers[each.alias_of]
        return first, first + buffer.elements * buffer.dtype.bytes

    def apart(self, one: str, two: str) -> bool:
        """Whether two buffers certainly share no memory."""
        if self.root(one) != self.root(two):
            return True
        first, end = self.extent(self.buffers[one])
        start, stop = self.extent(self.buffers[two])
        return self.surely(start - end) or self.surely(first - stop)

    def readable(self, name: str) -> bool:
        """Whether something was written to a buffer's memory, or it was given, or there is nothing in it."""
        root = self.root(name)
        if self.buffers[root].kind in GIVEN or self.buffers[name].elements == 0:
            return True
        return any(not self.apart(name, other) for other in self.written.get(root, ()))

    # --- steps -----------------------------------------------------------------------------------

    def steps(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            match step:
                case Launch():
                    self.launch(step, steps)
                case HostIf():
                    self.branch(step, steps)
                case HostLoop():
                    self.loop(step, steps)
                case HostCopy():
                    self.reads((step.source,), step, steps)
                    self.copy(step, steps)
                case HostRefuse():
                    self.write(step.target, step, steps)
                case _:
                    assert_never(step)

    def launch(self, launch: Launch, block: tuple[Step, ...]) -> None:
        params = launch.kernel.params
        if len(params) != len(launch.args):
            why = f"the kernel takes {len(params)} buffers, got {len(launch.args)}"
            raise self.fault(why, launch, block)
        for param, name in zip(params, launch.args, strict=True):
            buffer = self.known(name, launch, block)
            wanted = f"{param.dtype}{dims(param.shape)}{layout_text(param.layout)}"
            found = f"{buffer.dtype}{dims(buffer.shape)}{layout_text(buffer.layout)}"
            if wanted != found:
                why = f"{label(name)} is {found}, the kernel's {param.name} is {wanted}"
                raise self.fault(why, launch, block)
        self.reads(launch.reads(), launch, block)
        updated = [a for p, a in zip(params, launch.args, strict=True) if p.access is Access.INOUT]
        self.taken(updated)
        for target in launch.writes():
            others = [name for name in launch.args if name != target]
            for other in others:
                if not self.apart(target, other) and not launch.kernel.reinterprets:
                    raise self.fault(f"{target} shares memory with operand {other}", launch, block)
            if target not in updated:
                self.write(target, launch, block)

    def taken(self, updated: Iterable[str]) -> None:
        """Whoever used memory that a launch updates under another name has lost its content."""
        for target in updated:
            mine = self.used.setdefault(self.root(target), {})
            before = [n for n in mine if n != target and not self.apart(n, target)]
            self.lost.update(dict.fromkeys(before, target))

    def known(self, name: str, step: Step, block: tuple[Step, ...]) -> Buffer:
        if name not in self.buffers:
            raise self.fault(f"there is no buffer {name}", step, block)
        return self.buffers[name]

    def reads(self, names: Iterable[str], step: Step, block: tuple[Step, ...]) -> None:
        for name in names:
            self.known(name, step, block)
            if not self.readable(name):
                raise self.fault(f"{name} is read before it is written", step, block)
            if name in self.lost:
                why = f"{name} is read after {self.lost[name]} took its memory"
                raise self.fault(why, step, block)
            self.used.setdefault(self.root(name), {})[name] = None

    def write(self, name: str, step: Step, block: tuple[Step, ...]) -> None:
        """Note a write; each piece of memory has one writer."""
        self.known(name, step, block)
        root = self.root(name)
        if self.buffers[root].kind in GIVEN:
            raise self.fault(f"{name} belongs to {root}, which is given", step, block)
        for other in self.written.get(root, ()):
            if not self.apart(name, other):
                raise self.fault(f"{name} overwrites {other}", step, block)
        self.written.setdefault(root, []).append(name)
        self.used.setdefault(root, {})[name] = None

    def copy(self, step: HostCopy, block: tuple[Step, ...]) -> None:
        source, target = self.buffers[step.source], self.known(step.target, step, block)
        same = source.dtype is target.dtype and source.shape == target.shape
        if not same or source.layout != target.layout:
            raise self.fault(f"{source.name} and {target.name} are not alike", step, block)
        self.write(step.target, step, block)

    def branch(self, step: HostIf, block: tuple[Step, ...]) -> None:
        """What both branches write is written after them."""
        self.reads((step.condition,), step, block)
        before = self.copied()
        self.steps(step.then)
        after_then, self.written = self.written, before
        self.steps(step.otherwise)
        for root, names in self.written.items():
            both = set(after_then.get(root, ()))
            self.written[root] = [name for name in names if name in both]

    def loop(self, step: HostLoop, block: tuple[Step, ...]) -> None:
        """Entries, slices and the iteration number are written by the loop; exits by its body."""
        given = [c.initial for c in step.carried] + [s.stacked for s in step.scanned]
        given += [step.trips] if isinstance(step.trips, str) else []
        given += [step.condition] if step.condition is not None else []
        self.reads(given, step, block)
        before = self.copied()
        for name in (*(c.entry for c in step.carried), *(s.slice for s in step.scanned)):
            self.write(name, step, block)
        if step.iteration is not None:
            self.write(step.iteration, step, block)
        self.steps(step.body)
        made = [c.exit for c in step.carried] + [s.slice for s in step.stacked]
        made += [step.next_condition] if step.next_condition is not None else []
        self.reads(made, step, block)
        self.written = before
        for name in (*(c.final for c in step.carried), *(s.stacked for s in step.stacked)):
            self.write(name, step, block)

    def copied(self) -> dict[str, list[str]]:
        """The written buffers now, for a region to add to."""
        return {root: list(names) for root, names in self.written.items()}
