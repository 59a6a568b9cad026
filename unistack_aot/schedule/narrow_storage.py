"""Values that every reader rounds to the same narrow type anyway: stored in that type, so that far memory moves half.

Not here: which readers round (targets know their tile instructions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from unistack_aot.base.dtypes import DType
from unistack_aot.ir.scalar import Load, Scalar, cast
from unistack_aot.mcir.canonical import closed, opened
from unistack_aot.mcir.nodes import Access, Kernel, Stmt, Store
from unistack_aot.mcir.program import Buffer, Kind, Launch, Program
from unistack_aot.mcir.transform import all_loads, replace_loads, rewrite, walk
from unistack_aot.schedule.decision import Decision

Takes = Callable[[Kernel, str], DType | None]
"""The type to which a kernel (parameters named as buffers) rounds all it reads of a buffer; None if it does not."""


def narrow_storage(program: Program, takes: Takes) -> tuple[Program, tuple[Decision, ...]]:
    """Arena buffers stored in the type to which all readers round them: no value changes.

    before:
        v[i] = f(x[i])    and then    y[i, j] = fold sum over k in K of round<bf16>(v[i, k]) * w[k, j]
    after:
        v[i] = cast<bf16>(f(x[i]))    and then    y[i, j] = fold sum over k in K of v[i, k] * w[k, j]
    """
    steps = program.steps
    if not all(isinstance(step, Launch) for step in steps):
        return program, ()
    launches = [step for step in steps if isinstance(step, Launch)]
    shared = {b.alias_of for b in program.buffers} | {b.name for b in program.buffers if b.alias_of}
    known: dict[tuple[Kernel, str], DType | None] = {}
    chosen: dict[str, DType] = {}
    for buffer in program.buffers:
        if buffer.kind is Kind.ARENA and buffer.dtype.is_float and buffer.name not in shared:
            found = _narrower(buffer, launches, takes, known)
            if found is not None:
                chosen[buffer.name] = found
    buffers = tuple(replace(b, dtype=chosen.get(b.name, b.dtype)) for b in program.buffers)
    done = tuple(_converted(launch, chosen) for launch in launches)
    decisions = tuple(
        Decision("storage", name, dtype.name, "every reader rounds it to that type")
        for name, dtype in chosen.items()
    )
    return replace(program, buffers=buffers, steps=done), decisions


def _narrower(
    buffer: Buffer,
    launches: list[Launch],
    takes: Takes,
    known: dict[tuple[Kernel, str], DType | None],
) -> DType | None:
    """The one narrower type that all readers want of what one launch writes."""
    name = buffer.name
    writers = [launch for launch in launches if name in launch.writes()]
    readers = [launch for launch in launches if name in launch.reads()]
    if len(writers) != 1 or not readers or not _plainly_written(writers[0], name):
        return None
    wanted: set[DType | None] = set()
    for launch in readers:
        kernel = opened(launch)
        if (kernel, name) not in known:
            known[kernel, name] = takes(kernel, name)
        wanted.add(known[kernel, name])
    (found, *more) = wanted
    return None if more or found is None or found.bits >= buffer.dtype.bits else found


def _plainly_written(launch: Launch, name: str) -> bool:
    kernel = opened(launch)
    stores = [s for s in walk(kernel.body) if isinstance(s, Store) and s.buffer == name]
    return (
        not kernel.reinterprets
        and kernel.param(name).access is Access.OUT
        and all(store.combine == "set" for store in stores)
        and all(load.buffer != name for load in all_loads(kernel.body))
    )


def _converted(launch: Launch, chosen: dict[str, DType]) -> Launch:
    """The launch with the chosen types of what it reads and writes."""
    if not set(launch.args) & chosen.keys():
        return launch
    kernel = opened(launch)

    def read(load: Load) -> Scalar | None:
        if load.buffer not in chosen:
            return None
        return cast(load.dtype, Load(load.buffer, load.index, chosen[load.buffer]))

    def written(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Store) or stmt.buffer not in chosen:
            return None
        return replace(stmt, value=cast(chosen[stmt.buffer], stmt.value))

    body = rewrite(replace_loads(kernel.body, read), written)
    params = tuple(replace(p, dtype=chosen.get(p.name, p.dtype)) for p in kernel.params)
    return closed(replace(kernel, params=params, body=body), launch)
