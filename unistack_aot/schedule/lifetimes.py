"""From a scheduled program to the manifest's buffers, kernels and steps: numbers, lifetimes, symbolic sizes.

Not here: arena offsets (runtime/arena.py plans them per shape binding from these intervals).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from unistack_aot.artifact import manifest
from unistack_aot.base.symbolic import Dim, text
from unistack_aot.mcir.nodes import Kernel
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


@dataclass(frozen=True, slots=True)
class Exported:
    """A program in manifest form; `kernels` lists the distinct kernels in number order."""

    buffers: tuple[manifest.Buffer, ...]
    steps: tuple[manifest.Step, ...]
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    numbers: dict[str, int]


def export(program: Program, keys: dict[str, str]) -> Exported:
    """Number buffers and kernels, find lifetimes; `keys` maps input and output buffers to the signature's names."""
    used = _used(program)
    kept = [b for b in program.buffers if b.name in used or b.kind in (Kind.INPUT, Kind.OUTPUT)]
    kept += [b for b in program.buffers if b not in kept and _aliased(b, kept)]
    numbers = {buffer.name: k for k, buffer in enumerate(kept)}
    launches = tuple(program.launches())
    kernels = tuple(dict.fromkeys(launch.kernel for launch in launches))
    order = {kernel: k for k, kernel in enumerate(kernels)}
    steps = tuple(_step(step, numbers, order) for step in program.steps)
    spans = _spans(steps)
    buffers = tuple(_buffer(b, numbers, spans, keys) for b in kept)
    return Exported(buffers, steps, kernels, launches, numbers)


def _aliased(buffer: Buffer, kept: list[Buffer]) -> bool:
    return any(other.alias_of == buffer.name for other in kept)


def _used(program: Program) -> set[str]:
    names: set[str] = set()

    def visit(steps: tuple[Step, ...]) -> None:
        for step in steps:
            names.update(_touched(step))
            match step:
                case HostIf():
                    visit(step.then)
                    visit(step.otherwise)
                case HostLoop():
                    visit(step.body)
                case _:
                    pass

    visit(program.steps)
    by_name = program.by_name()
    for name in tuple(names):
        while (parent := by_name[name].alias_of) is not None:
            names.add(parent)
            name = parent
    return names


def _touched(step: Step) -> set[str]:
    match step:
        case Launch():
            return set(step.args)
        case HostCopy():
            return {step.source, step.target}
        case HostRefuse():
            return {step.target}
        case HostIf():
            return {step.condition}
        case HostLoop():
            names = {step.condition, step.next_condition, step.iteration}
            names |= {step.trips} if isinstance(step.trips, str) else set()
            for c in step.carried:
                names |= {c.initial, c.entry, c.exit, c.final}
            for s in (*step.scanned, *step.stacked):
                names |= {s.stacked, s.slice}
            return {name for name in names if name is not None}
        case _:
            assert_never(step)


def _step(step: Step, numbers: dict[str, int], kernels: dict[Kernel, int]) -> manifest.Step:
    def steps(inner: tuple[Step, ...]) -> tuple[manifest.Step, ...]:
        return tuple(_step(s, numbers, kernels) for s in inner)

    match step:
        case Launch():
            buffers = tuple(numbers[a] for a in step.args)
            return manifest.Launch(kernels[step.kernel], buffers, step.origins)
        case HostCopy():
            return manifest.Copy(numbers[step.source], numbers[step.target])
        case HostRefuse():
            return manifest.Refuse(numbers[step.target], step.reason)
        case HostIf():
            return manifest.If(numbers[step.condition], steps(step.then), steps(step.otherwise))
        case HostLoop():
            return _loop(step, numbers, steps(step.body))
        case _:
            assert_never(step)


def _loop(
    step: HostLoop, numbers: dict[str, int], body: tuple[manifest.Step, ...]
) -> manifest.Loop:
    def number(name: str | None) -> int | None:
        return None if name is None else numbers[name]

    named = isinstance(step.trips, str)
    return manifest.Loop(
        body=body,
        trips=number(step.trips) if isinstance(step.trips, str) else None,
        condition=number(step.condition),
        iteration=number(step.iteration),
        condition_out=number(step.next_condition),
        carried=tuple(
            manifest.Carried(
                numbers[c.initial], numbers[c.entry], numbers[c.exit], numbers[c.final]
            )
            for c in step.carried
        ),
        scan_inputs=tuple(
            manifest.Scanned(numbers[s.stacked], numbers[s.slice], 0, s.reverse)
            for s in step.scanned
        ),
        scan_outputs=tuple(
            manifest.Scanned(numbers[s.stacked], numbers[s.slice], 0, s.reverse)
            for s in step.stacked
        ),
        limit="" if named or step.trips is None else text(step.trips),  # type: ignore[arg-type]
    )


def _spans(steps: tuple[manifest.Step, ...]) -> dict[int, tuple[int, int]]:
    """First and last step that touch each buffer; whatever a loop touches lives through the whole loop."""
    spans: dict[int, tuple[int, int]] = {}
    counter = iter(range(1 << 30))

    def touch(buffer: int | None, first: int, last: int) -> None:
        if buffer is not None:
            old = spans.get(buffer, (first, last))
            spans[buffer] = (min(old[0], first), max(old[1], last))

    def visit(block: tuple[manifest.Step, ...]) -> int:
        position = -1
        for step in block:
            position = next(counter)
            start = position
            inner = [visit(part) for part in manifest.children(step)]
            end = max([start, *inner])
            for buffer in _numbers(step):
                touch(buffer, start, end)
            if isinstance(step, manifest.Loop):
                for buffer in _inside(step.body):
                    touch(buffer, start, end)
            position = end
        return position

    visit(steps)
    return spans


def _numbers(step: manifest.Step) -> list[int]:
    match step:
        case manifest.Launch():
            return list(step.buffers)
        case manifest.Copy():
            return [step.source, step.target]
        case manifest.Fill() | manifest.Refuse():
            return [step.buffer]
        case manifest.If():
            return [step.condition]
        case manifest.Loop():
            found = [step.trips, step.condition, step.iteration, step.condition_out, step.count]
            for c in step.carried:
                found += [c.initial, c.entering, c.leaving, c.final]
            for s in (*step.scan_inputs, *step.scan_outputs):
                found += [s.stacked, s.slice]
            return [n for n in found if n is not None]


def _inside(body: tuple[manifest.Step, ...]) -> list[int]:
    return [n for step in manifest.walk(body) for n in _numbers(step)]


def _buffer(
    buffer: Buffer,
    numbers: dict[str, int],
    spans: dict[int, tuple[int, int]],
    keys: dict[str, str],
) -> manifest.Buffer:
    first, last = spans.get(numbers[buffer.name], (0, 0))
    size: Callable[[Dim], str] = text
    constant = buffer.constant or ""
    return manifest.Buffer(
        name=buffer.name,
        dtype=buffer.dtype.name,
        shape=tuple(size(d) for d in buffer.layout.physical_shape(buffer.shape)),
        nbytes=size(buffer.elements * buffer.dtype.bytes),
        kind=buffer.kind.value,  # type: ignore[arg-type]
        key=keys.get(buffer.name, constant),
        first=first,
        last=last,
        alias_of=None if buffer.alias_of is None else numbers[buffer.alias_of],
        offset=size(buffer.offset * buffer.dtype.bytes),
    )
