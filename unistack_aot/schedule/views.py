"""Results that need no memory of their own: outputs written in place, reinterpretations as aliases, unused buffers."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import Dim
from unistack_aot.mcir.program import (
    Buffer,
    HostCopy,
    HostIf,
    HostLoop,
    Kind,
    Launch,
    Program,
    Step,
)
from unistack_aot.schedule.uses import touched


def write_outputs_in_place(program: Program) -> Program:
    """Rename a value that is only computed to be copied to an output, so that it is written there at once."""
    buffers = program.by_name()
    writers: dict[str, int] = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, Launch):
            for name in step.writes():
                writers[name] = position
    names: dict[str, str] = {}
    steps: list[Step] = []
    inside = set[str]().union(*(touched(s) for s in program.steps if _nested(s)))
    for step in program.steps:
        if isinstance(step, HostCopy) and _replaceable(step, buffers, writers, names, inside):
            names[step.source] = step.target
        else:
            steps.append(step)
    if not names:
        return program
    fresh = tuple(_renamed(step, names) for step in steps)
    kept = tuple(b for b in program.buffers if b.name not in names)
    return Program(program.name, kept, fresh)


def _replaceable(
    copy: HostCopy,
    buffers: dict[str, Buffer],
    writers: dict[str, int],
    names: dict[str, str],
    inside: set[str],
) -> bool:
    source = buffers[copy.source]
    return (
        source.kind is Kind.ARENA
        and copy.source in writers
        and copy.source not in names
        and copy.source not in inside
        and buffers[copy.target].kind is Kind.OUTPUT
    )


def _nested(step: Step) -> bool:
    return isinstance(step, HostIf | HostLoop)


def _renamed(step: Step, names: dict[str, str]) -> Step:
    if isinstance(step, Launch):
        return replace(step, args=tuple(names.get(a, a) for a in step.args))
    if isinstance(step, HostCopy):
        return replace(step, source=names.get(step.source, step.source))
    return step


def alias_reinterpretations(program: Program) -> Program:
    """Turn launches that only reinterpret dense memory into aliases: no copy, no memory."""
    buffers = program.by_name()
    steps = _alias_block(program.steps, buffers)
    return Program(program.name, tuple(buffers.values()), steps)


def _alias_block(steps: tuple[Step, ...], buffers: dict[str, Buffer]) -> tuple[Step, ...]:
    kept: list[Step] = []
    for step in steps:
        match step:
            case Launch() if step.kernel.reinterprets and _alias(step, buffers):
                continue
            case HostIf():
                then = _alias_block(step.then, buffers)
                otherwise = _alias_block(step.otherwise, buffers)
                kept.append(replace(step, then=then, otherwise=otherwise))
            case HostLoop():
                kept.append(replace(step, body=_alias_block(step.body, buffers)))
            case _:
                kept.append(step)
    return tuple(kept)


def _alias(launch: Launch, buffers: dict[str, Buffer]) -> bool:
    """Make the result an alias of the source, or the source of the result; False if neither may be."""
    if len(launch.args) != 2:
        return False
    source, result = (buffers[name] for name in launch.args)
    if not (source.layout.plain and result.layout.plain):
        return False
    if result.kind is Kind.ARENA and result.alias_of is None:
        root, offset = root_of(source, buffers)
        buffers[result.name] = replace(result, alias_of=root, offset=offset)
        return True
    if result.kind is Kind.OUTPUT and source.kind is Kind.ARENA and source.alias_of is None:
        if any(b.alias_of == source.name for b in buffers.values()):
            return False
        buffers[source.name] = replace(source, alias_of=result.name, offset=0)
        return True
    return False


def without_unused(program: Program) -> Program:
    """The program without buffers that no step uses and no used one lies in; inputs and outputs stay."""
    buffers = program.by_name()
    used = set[str]().union(*(touched(step) for step in program.steps))
    used |= {b.name for b in program.buffers if b.kind in (Kind.INPUT, Kind.OUTPUT)}
    used |= {root_of(buffers[name], buffers)[0] for name in used}
    return replace(program, buffers=tuple(b for b in program.buffers if b.name in used))


def root_of(buffer: Buffer, buffers: dict[str, Buffer]) -> tuple[str, Dim]:
    """The buffer that owns the memory of an alias, and the offset into it in elements."""
    offset: Dim = 0
    while buffer.alias_of is not None:
        offset = offset + buffer.offset
        buffer = buffers[buffer.alias_of]
    return buffer.name, offset
