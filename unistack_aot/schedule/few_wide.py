"""Loop roles for machines of few wide workers (cores with vector units): grid over cores, vectors innermost.

Not here: tiles of contractions (panel_tiles.py), fusion of kernels (fusion.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from unistack_aot.base.symbolic import Dim, Ranges, bounds
from unistack_aot.base.verdict import No
from unistack_aot.mcir.accesses import accesses
from unistack_aot.mcir.nodes import (
    Attend,
    Drain,
    Fold,
    Kernel,
    Let,
    Loop,
    Role,
    Stmt,
    Store,
    Stream,
    When,
)
from unistack_aot.mcir.transform import (
    perfect_nest,
)
from unistack_aot.schedule.block_cuts import CUT_BLOCKS, blocked_loop
from unistack_aot.schedule.clipping import CLIP
from unistack_aot.schedule.lanes_inside import LANES_INSIDE
from unistack_aot.schedule.loops import BIND, FUSE, SPLIT
from unistack_aot.schedule.operator import or_same
from unistack_aot.schedule.unswitch import UNSWITCH

LEAST = 2048  # scalar operations per task below which handing it out costs more than it saves
LANES = 32  # iterations of a vector loop around folds: two to four registers on every level
MOST_LANES = 64  # where memory is in longer blocks: four to eight registers


@dataclass(frozen=True, slots=True)
class WideWorkers:
    """Numbers the choice depends on.

    `task` is the least number of scalar operations worth handing to another worker (its wake-up cost in work);
    `chunk` the elements of a one-dimensional loop given to a worker at once. With `steps`, workers share the nests
    of an ordered loop and meet after each; else one of them runs the loop.
    """

    task: int = 16384
    chunk: int = 8192
    tasks: int = 64
    steps: bool = False


def assign_roles(kernel: Kernel, ranges: Ranges, numbers: WideWorkers) -> Kernel:
    """Decide every MAP loop and fold of a kernel: outermost loops to GRID, innermost to VECTOR, the rest SEQ."""
    parts = (part for stmt in kernel.body for part in or_same(CUT_BLOCKS(kernel, stmt), (stmt,)))
    return kernel.with_body(tuple(_nest(kernel, part, ranges, numbers) for part in parts))


def _nest(kernel: Kernel, stmt: Stmt, ranges: Ranges, numbers: WideWorkers) -> Stmt:
    if not isinstance(stmt, Loop) or stmt.role is not Role.MAP:
        return _step_by_step(kernel, stmt, ranges, numbers)
    loop = _flatten(kernel, lanes_innermost(kernel, stmt, ranges), ranges)
    if not _deep(loop):
        return _single(kernel, loop, ranges, numbers)
    if _work(loop) < numbers.task:
        return _inner(kernel, (loop,), ranges)[0]
    return _grid(kernel, loop, ranges, numbers.tasks)


def _step_by_step(kernel: Kernel, stmt: Stmt, ranges: Ranges, numbers: WideWorkers) -> Stmt:
    """An ordered loop outside of all tasks: the nests of a step are shared, or all of it is one worker's."""
    if not numbers.steps:
        return _inner(kernel, (stmt,), ranges)[0]
    match stmt:
        case Loop(role=Role.SEQ):
            stmt = or_same(UNSWITCH(stmt), stmt)
            inside = _with(ranges, stmt)
            return replace(stmt, body=tuple(_nest(kernel, s, inside, numbers) for s in stmt.body))
        case When():
            yes = tuple(_nest(kernel, s, ranges, numbers) for s in stmt.body)
            no = tuple(_nest(kernel, s, ranges, numbers) for s in stmt.otherwise)
            return replace(stmt, body=yes, otherwise=no)
        case _:
            return _inner(kernel, (stmt,), ranges)[0]


def _flatten(kernel: Kernel, loop: Loop, ranges: Ranges) -> Loop:
    """Join loops from the inside out while addresses stay linear."""
    if len(loop.body) == 1 and isinstance(loop.body[0], Loop) and loop.body[0].role is Role.MAP:
        inner = _flatten(kernel, loop.body[0], _with(ranges, loop))
        loop = replace(loop, body=(inner,))
        joint = FUSE(kernel, loop, ranges)
        return loop if isinstance(joint, No) else joint
    return loop


def _single(kernel: Kernel, loop: Loop, ranges: Ranges, numbers: WideWorkers) -> Stmt:
    """A loop without loops inside: chunks over workers, vectors inside a chunk."""
    if _laned(kernel, loop, ranges):
        return _lanes(loop)
    if not _straight(loop.body):
        body = _inner(kernel, loop.body, _with(ranges, loop))
        small = isinstance(loop.extent, int) and _work(loop) < numbers.task
        return BIND.sure(loop, Role.SEQ if small else Role.GRID, body)
    vector = Role.VECTOR if _vectorises(kernel, loop, ranges) else Role.SEQ
    if isinstance(loop.extent, int) and loop.extent <= numbers.chunk:
        return BIND.sure(loop, vector)
    return SPLIT.sure(loop, numbers.chunk, Role.GRID, vector)


def _grid(kernel: Kernel, loop: Loop, ranges: Ranges, wanted: int) -> Loop:
    """Outer loops become GRID until there are enough tasks; a loop with straight code inside stays for vectors."""
    inside = _with(ranges, loop)
    (only, *others) = loop.body
    extent = loop.extent if isinstance(loop.extent, int) else 1
    nested = not others and isinstance(only, Loop) and only.role is Role.MAP
    if nested and isinstance(only, Loop) and extent < wanted and _shares(kernel, only, inside):
        return BIND.sure(loop, Role.GRID, (_grid(kernel, only, inside, wanted // max(extent, 1)),))
    return BIND.sure(loop, Role.GRID, _inner(kernel, loop.body, inside))


def _shares(kernel: Kernel, loop: Loop, ranges: Ranges) -> bool:
    """Whether a nested loop's iterations may go to other workers: deep and long enough, and no loop of lanes."""
    small = isinstance(loop.extent, int) and _work(loop) < loop.extent * LEAST
    return _deep(loop) and not small and not _laned(kernel, loop, ranges)


def _inner(kernel: Kernel, body: tuple[Stmt, ...], ranges: Ranges) -> tuple[Stmt, ...]:
    """Roles of everything inside one worker's task."""
    return tuple(_one(kernel, stmt, ranges) for stmt in body)


def _one(kernel: Kernel, stmt: Stmt, ranges: Ranges) -> Stmt:
    match stmt:
        case Loop():
            stmt = _sums_in_blocks(kernel, stmt, ranges)
            if stmt.role is Role.MAP and _laned(kernel, stmt, ranges):
                return _lanes(stmt)
            if stmt.role is Role.MAP and _straight(stmt.body):
                vector = _vectorises(kernel, stmt, ranges)
                return BIND.sure(stmt, Role.VECTOR if vector else Role.SEQ)
            stmt = or_same(UNSWITCH(stmt), stmt) if stmt.role is Role.SEQ else stmt
            body = _inner(kernel, stmt.body, _with(ranges, stmt))
            return BIND.sure(stmt, Role.SEQ if stmt.role is Role.MAP else stmt.role, body)
        case Fold():
            return _fold(kernel, stmt, ranges)
        case When():
            yes = _inner(kernel, stmt.body, ranges)
            return replace(stmt, body=yes, otherwise=_inner(kernel, stmt.otherwise, ranges))
        case Drain() | Stream() | Attend():
            return replace(stmt, body=_inner(kernel, stmt.body, ranges))
        case _:
            return stmt


def _sums_in_blocks(kernel: Kernel, loop: Loop, ranges: Ranges) -> Loop:
    """Inside a task: independent sums over an operand in blocks become loops over lanes, as those around tasks do."""
    loops, body = perfect_nest((loop,))
    sums = any(isinstance(stmt, Fold) for stmt in body)
    if not sums or blocked_loop(kernel, loops, body) is None:
        return loop
    return lanes_innermost(kernel, loop, ranges)


def _lanes(loop: Loop) -> Loop:
    """A vector loop around folds: guards that are the same for all lanes limit the folds' axes."""
    body = tuple(or_same(CLIP(s, loop.var), s) if isinstance(s, Fold) else s for s in loop.body)
    return BIND.sure(loop, Role.VECTOR, body)


def _fold(kernel: Kernel, fold: Fold, ranges: Ranges) -> Fold:
    """A fold runs in vectors if it has no inner statements and reads contiguously along its last axis."""
    inside = dict(ranges)
    for axis in fold.axes:
        inside[axis.var] = (0, axis.extent - 1 if isinstance(axis.extent, int) else None)
    if fold.body:
        return replace(fold, body=_inner(kernel, fold.body, inside))
    fold = or_same(CLIP(fold), fold)
    last = fold.axes[-1]
    probe = (replace(fold, axes=()),)
    strides = [a.stride(last.var) for a in accesses(kernel, probe, inside)]
    wide = all(s in (0, 1) for s in strides) and not (
        isinstance(last.extent, int) and last.extent < 8
    )
    return replace(fold, role=Role.VECTOR if wide else Role.SEQ)


def _vectorises(kernel: Kernel, loop: Loop, ranges: Ranges) -> bool:
    """Stores must be contiguous; strided or gathered loads still pay off."""
    found = accesses(kernel, loop.body, _with(ranges, loop))
    return all(a.stride(loop.var) == 1 for a in found if a.write)


def _straight(body: tuple[Stmt, ...]) -> bool:
    return all(isinstance(stmt, Let | Store) for stmt in body)


def _laned(kernel: Kernel, loop: Loop, ranges: Ranges) -> bool:
    """Whether a short loop around folds can run with one partial state per iteration, in vectors."""
    folds = [stmt for stmt in loop.body if isinstance(stmt, Fold)]
    simple = all(isinstance(stmt, Let | Store | Fold) for stmt in loop.body)
    if not folds or not simple or any(fold.body or fold.role is not Role.SEQ for fold in folds):
        return False
    if not _short(loop.extent):
        return False
    found = accesses(kernel, loop.body, _with(ranges, loop))
    return all(a.stride(loop.var) in (0, 1) for a in found) and any(
        a.stride(loop.var) == 1 for a in found if not a.write
    )


def _short(extent: Dim) -> bool:
    """At most MOST_LANES iterations, whatever the symbols are."""
    top = bounds(extent, {})[1]
    return top is not None and top <= MOST_LANES


def lanes_innermost(kernel: Kernel, loop: Loop, ranges: Ranges) -> Loop:
    """Move the loop along which memory is contiguous inside the others, cut to a vector's length.

    That is the loop over a blocked axis, or, around a fold over a strided axis, the last loop of the result.
    """
    loops, body = perfect_nest((loop,))
    if any(each.role is not Role.MAP for each in loops):
        return loop
    chosen = _lane_loop(kernel, loops, body, ranges)
    if chosen is None:
        return loop
    var, size = chosen
    return LANES_INSIDE.sure(loop, var, size)


def _lane_loop(
    kernel: Kernel, loops: tuple[Loop, ...], body: tuple[Stmt, ...], ranges: Ranges
) -> tuple[str, int] | None:
    """Which loop becomes the vector loop, and how many iterations at once; None to leave the nest alone."""
    blocked = blocked_loop(kernel, loops, body)
    if blocked is not None:
        return blocked
    if not any(isinstance(stmt, Fold) for stmt in body) or not loops:
        return None
    inside = dict(ranges)
    for each in loops:
        inside = _with(inside, each)
    last = loops[-1]
    if isinstance(last.extent, int) and last.extent < 8:
        return None
    probe = replace(last, extent=LANES, body=body)
    wide = all(_strided(kernel, s, inside) for s in body if isinstance(s, Fold))
    return (last.var, LANES) if wide and _laned(kernel, probe, inside) else None


def _strided(kernel: Kernel, fold: Fold, ranges: Ranges) -> bool:
    """Whether a fold would have to read with a stride along its last axis."""
    inside = dict(ranges)
    for axis in fold.axes:
        inside[axis.var] = (0, axis.extent - 1 if isinstance(axis.extent, int) else None)
    found = accesses(kernel, (replace(fold, axes=()),), inside)
    return any(a.stride(fold.axes[-1].var) not in (0, 1) for a in found)


def _deep(loop: Loop) -> bool:
    return any(isinstance(stmt, Loop | Fold | Stream) for stmt in loop.body)


def _work(loop: Loop) -> int:
    """Iterations of a nest, symbolic extents counted as large."""
    extent = loop.extent if isinstance(loop.extent, int) else 1 << 20
    inner = 0
    for stmt in loop.body:
        match stmt:
            case Loop():
                inner += _work(stmt)
            case Fold():
                sizes = (a.extent if isinstance(a.extent, int) else 1024 for a in stmt.axes)
                inner += prod(sizes)
            case _:
                inner += 1
    return extent * max(inner, 1)


def _with(ranges: Ranges, loop: Loop) -> Ranges:
    top = bounds(loop.extent, ranges)[1]
    return {**ranges, loop.var: (0, None if top is None else top - 1)}
