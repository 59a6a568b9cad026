"""Kernel fusion: maps into their readers, maps into the end of their producer, kernels that share a row loop.

Every fusion saves the store and loads of one far buffer; limits keep kernels small. Not here: tiles, layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from unistack_aot.base.symbolic import Dim, evaluate, substitute, symbol, symbols, text
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import (
    Call,
    IndexEntry,
    Load,
    Name,
    Scalar,
    loads,
    postorder,
    substitute_indices,
)
from unistack_aot.mcir.canonical import apart_from, closed, opened, union
from unistack_aot.mcir.nodes import Access, Fold, Kernel, Let, Loop, Param, Role, Stmt, Store
from unistack_aot.mcir.program import (
    Buffer,
    HostIf,
    HostLoop,
    Kind,
    Launch,
    Program,
    Step,
)
from unistack_aot.mcir.transform import (
    all_loads,
    map_store,
    perfect_nest,
    replace_loads,
    rewrite,
    scalars,
    substitute_vars,
    walk,
)
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.movement import inverse, keeps_rows, place, stored_places
from unistack_aot.schedule.uses import Uses, cost, is_movement, touched, uses_of

MOST_PARAMS = 24  # kernels beyond this spend their registers on addresses
MOST_NODES = 400  # scalar nodes per kernel; larger ones take compilers minutes
TYPICAL = 64  # what a symbolic extent counts for when two numbers of points are compared
CHEAP = 4.0  # operations that are cheaper to repeat than to store and load


@dataclass
class Fuser:
    """One block of steps under fusion; fused-away steps become None."""

    buffers: dict[str, Buffer]
    steps: list[Step | None]
    outer: set[str]
    decisions: list[Decision]

    def run(self) -> tuple[Step, ...]:
        """All fusions, in the order that leaves most for the later ones."""
        self.sweep(self.extend)
        self.sweep(self.inline)
        self.sweep(self.extend)
        self.sweep(self.join_rows)
        self.sweep(self.extend)
        return tuple(step for step in self.steps if step is not None)

    def sweep(self, fusion: object) -> None:
        """Offer every launch, in order, to a fusion until none applies."""
        assert callable(fusion)
        position = 0
        while position < len(self.steps):
            step = self.steps[position]
            if isinstance(step, Launch):
                fusion(position, step, uses_of(self.steps, self.outer))
            position += 1

    # --- a map into the kernels that read it -------------------------------------------------------

    def inline(self, position: int, launch: Launch, uses: Uses) -> None:
        """Replace loads of a map's result by the map's expression in every reader, if all agree."""
        found = map_store(launch.kernel)
        if found is None or len(launch.writes()) != 1:
            return
        (result,) = launch.writes()
        readers = sorted(set(uses.reads[result]))
        if result in uses.outside or not readers or self.buffers[result].kind is not Kind.ARENA:
            return
        if isinstance(stored_places(*found, launch.kernel), No):
            return
        for reader in readers:
            step = self.steps[reader]
            if not isinstance(step, Launch) or not self.may_inline(
                launch, step, result, len(readers)
            ):
                return
        into: list[str] = []
        for reader in readers:
            step = self.steps[reader]
            assert isinstance(step, Launch)
            self.steps[reader] = inlined(launch, step, result)
            into += step.writes()
        self.steps[position] = None
        self.note("inline", result, launch, f"{len(readers)} reader(s) compute it in place", into)

    def may_inline(self, producer: Launch, reader: Launch, result: str, readers: int) -> Yes | No:
        """Whether recomputing a map inside a reader costs less than storing it."""
        found = map_store(producer.kernel)
        assert found is not None
        _, store = found
        moves = is_movement(store.value)
        if reader.kernel.reinterprets and not moves:
            return No("the reader costs nothing as a view")
        if len(reader.args) + len(producer.args) - 2 > MOST_PARAMS:
            return No("too many buffers in one kernel")
        if sum(1 for _ in postorder(store.value)) + size(reader.kernel) > MOST_NODES:
            return No("the kernel would grow too large")
        if contracts(reader.kernel) and not moves:
            return No("a contraction would recompute it for every product")
        if readers > 1 and not moves and not _constant_like(store.value):
            return No("several readers would repeat its arithmetic")
        repeats = evaluations(reader, result)
        if repeats > 1.01 and not moves and cost(store.value) * (repeats - 1) > CHEAP:
            return No("the reader loads it several times")
        if movement_hurts(producer, reader):
            return No("its access pattern is better paid once")
        return YES

    # --- a map into the end of its producer ---------------------------------------------------------

    def extend(self, position: int, launch: Launch, uses: Uses) -> None:
        """Apply the only reader of a result, a map over the same indices, before the result is stored."""
        if len(launch.writes()) != 1:
            return
        (result,) = launch.writes()
        reader = uses.only_reader(result)
        if reader is None or self.buffers[result].kind is not Kind.ARENA:
            return
        step = self.steps[reader]
        if not isinstance(step, Launch):
            return
        if map_store(launch.kernel) is not None and not step.kernel.reinterprets:
            return
        merged = extended(launch, step, result)
        if isinstance(merged, No) or size(merged.kernel) > MOST_NODES:
            return
        self.steps[reader] = merged
        self.steps[position] = None
        chosen = f"applied before the store of {step.writes()[0]}"
        self.note("epilogue", result, launch, chosen, step.writes())

    # --- kernels over the same rows -------------------------------------------------------------------

    def join_rows(self, position: int, launch: Launch, uses: Uses) -> None:
        """Join a fold with a reader that runs over the same rows; folded values stay in registers."""
        results = launch.writes()
        if not folds(launch.kernel) or contracts(launch.kernel):
            return
        if any(self.buffers[r].kind is not Kind.ARENA or r in uses.outside for r in results):
            return
        readers = sorted({reader for r in results for reader in uses.reads[r]})
        if not readers:
            return
        first = readers[0]
        step = self.steps[first]
        if not isinstance(step, Launch) or contracts(step.kernel):
            return
        keep = frozenset(r for r in results if set(uses.reads[r]) - {first})
        merged = joined(launch, step, keep)
        if isinstance(merged, No) or size(merged.kernel) > MOST_NODES:
            return
        self.steps[first] = merged
        self.steps[position] = None
        for result in results:
            if result not in keep:
                chosen = f"kept in registers for {step.writes()[0]}"
                self.note("row", result, launch, chosen, step.writes())

    def note(
        self, kind: str, result: str, launch: Launch, chosen: str, into: Sequence[str]
    ) -> None:
        """Record a fusion with the far bytes it saves; `into` are results of the kernels that compute it now."""
        buffer = self.buffers[result]
        saved = text(buffer.elements * buffer.dtype.bytes * 2)
        where = ", ".join(launch.origins[:3]) or result
        because = f"saves {saved} far bytes"
        self.decisions.append(
            Decision(f"fuse-{kind}", where, chosen, because, value=result, into=tuple(into))
        )


def fuse(program: Program) -> tuple[Program, tuple[Decision, ...]]:
    """Fuse within every block of steps, and turn remaining reinterpretations into views."""
    decisions: list[Decision] = []
    buffers = program.by_name()
    steps = _fuse_block(program.steps, buffers, set(), decisions)
    return Program(program.name, program.buffers, steps), tuple(decisions)


def _fuse_block(
    steps: tuple[Step, ...],
    buffers: dict[str, Buffer],
    outer: set[str],
    decisions: list[Decision],
) -> tuple[Step, ...]:
    inner: list[Step | None] = []
    for position, step in enumerate(steps):
        others = outer.union(*(touched(s) for k, s in enumerate(steps) if k != position))
        match step:
            case HostIf():
                then = _fuse_block(step.then, buffers, others, decisions)
                otherwise = _fuse_block(step.otherwise, buffers, others, decisions)
                inner.append(replace(step, then=then, otherwise=otherwise))
            case HostLoop():
                held = others | _loop_buffers(step)
                inner.append(replace(step, body=_fuse_block(step.body, buffers, held, decisions)))
            case _:
                inner.append(step)
    return Fuser(buffers, inner, outer, decisions).run()


def _loop_buffers(loop: HostLoop) -> set[str]:
    return touched(replace(loop, body=()))


# --- the three fusions on launches ---------------------------------------------------------------------


def inlined(producer: Launch, reader: Launch, result: str) -> Launch:
    """The reader with loads of `result` replaced by the producer's expression."""
    source, target = opened(producer), opened(reader)
    found = map_store(source)
    assert found is not None
    loops, store = found
    places = stored_places(loops, store, source)
    assert not isinstance(places, No)

    def change(load: Load) -> Scalar | None:
        if load.buffer != result:
            return None
        at = {str(place(k)): entry for k, entry in enumerate(load.index)}
        env = {var: at.get(str(p), p) for var, p in places.items()}
        whole = {var: e if isinstance(e, Scalar) else _substituted(e, at) for var, e in env.items()}
        return substitute_indices(store.value, whole)

    body = replace_loads(target.body, change)
    params = [p for p in target.params if p.name != result]
    sources = tuple(p for p in source.params if p.access is Access.IN)
    outs = tuple(p for p in params if p.access is not Access.IN)
    ins = tuple(p for p in params if p.access is Access.IN)
    kept = _loaded((*union(ins, sources), *outs), body)
    plain = target.reinterprets and source.reinterprets
    return closed(Kernel(kept, body, plain), _both(producer, reader))


def _loaded(params: tuple[Param, ...], body: tuple[Stmt, ...]) -> tuple[Param, ...]:
    names = {load.buffer for load in all_loads(body)}
    return tuple(p for p in params if p.access is not Access.IN or p.name in names)


def extended(producer: Launch, reader: Launch, result: str) -> Launch | No:
    """The producer storing what the reader (a map over the same indices) makes of its result."""
    target = opened(reader)
    found = map_store(target)
    if found is None:
        return No("the reader is not a map")
    loops, store = found
    source = opened(producer)
    stores = [s for s in walk(source.body) if isinstance(s, Store) and s.buffer == result]
    again = any(load.buffer == result for load in all_loads(source.body))
    if len(stores) != 1 or stores[0].combine != "set" or again:
        return No("the producer uses its result before it is complete")
    written = stores[0]
    places = _reader_places(target, loops, store, result)
    if isinstance(places, No):
        return places
    at = {str(place(k)): entry for k, entry in enumerate(written.index)}
    if any(isinstance(entry, Scalar) for entry in at.values()):
        return No("the producer stores at places that depend on data")
    env = {var: _substituted(value, at) for var, value in places.items()}

    def change(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Store) or stmt.buffer != result:
            return None
        value = substitute_indices(store.value, env)
        index = tuple(e if isinstance(e, Scalar) else _substituted(e, env) for e in store.index)
        (fresh,) = replace_loads(
            (Store(store.buffer, index, value),),
            lambda load: written.value if load.buffer == result else None,
        )
        return fresh

    body = rewrite(source.body, change)
    gone = tuple(p for p in source.params if p.name != result)
    others = tuple(p for p in target.params if p.name != result)
    return closed(Kernel(_outputs_last(union(gone, others)), body), _both(producer, reader))


def _reader_places(
    target: Kernel, loops: tuple[Loop, ...], store: Store, result: str
) -> dict[str, Dim] | No:
    """The reader's loop variables by the place of the one element of `result` that it reads."""
    reads = {load.index for load in all_loads(target.body) if load.buffer == result}
    if len(reads) != 1:
        return No("the reader reads several elements")
    (read,) = reads
    source, shape = target.param(result).shape, target.param(store.buffer).shape
    variables = {loop.var for loop in loops}
    if any(isinstance(e, Scalar) or (e != 0 and str(e) not in variables) for e in store.index):
        return No("the reader stores elsewhere than at its loop variables")
    places = inverse(read, source, loops, shape)
    if isinstance(places, No):
        return places
    index = tuple(_substituted(e, places) for e in store.index if not isinstance(e, Scalar))
    if not keeps_rows(index, source, shape):
        return No("neighbours of the result would be stored apart")
    return places


def _substituted(value: Dim, env: Mapping[str, IndexEntry]) -> Dim:
    return substitute(value, {k: v for k, v in env.items() if not isinstance(v, Scalar)})


def joined(producer: Launch, reader: Launch, keep: frozenset[str]) -> Launch | No:
    """Both kernels in one loop over their common rows; results are Lets there, those in `keep` are stored too."""
    source, target = opened(producer), opened(reader)
    target = apart_from(target, source)
    outer, inner = perfect_nest(source.body)
    results = {p.name: p for p in source.outputs}
    places = _row_places(outer, inner, tuple(results))
    if isinstance(places, No):
        return places
    outers, _ = perfect_nest(target.body)
    if len(outers) < len(outer) or not outer:
        return No("the reader has fewer loops")
    same = outers[: len(outer)]
    env: dict[str, Dim] = {}
    for mine, theirs in zip(outer, same, strict=True):
        if mine.extent != theirs.extent or mine.role is not theirs.role:
            return No(f"loops {mine.var} and {theirs.var} differ")
        env[theirs.var] = symbol(mine.var)
    rest = substitute_vars(same[-1].body, env)
    for load in all_loads(rest):
        found = results.get(load.buffer)
        if found and not same_place(load.index, places[load.buffer], found.shape):
            return No("the reader uses other rows' results")

    def held(name: str) -> Name:
        return Name(f"{name}_value", results[name].dtype)

    tail = replace_loads(rest, lambda read: held(read.buffer) if read.buffer in results else None)

    def change(stmt: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        if not isinstance(stmt, Store) or stmt.buffer not in results:
            return None
        value = held(stmt.buffer)
        let = Let(value.name, stmt.value)
        return (let, replace(stmt, value=value)) if stmt.buffer in keep else let

    body: tuple[Stmt, ...] = (*rewrite(inner, change), *tail)
    for loop in reversed(outer):
        body = (replace(loop, body=body),)
    gone = tuple(p for p in source.params if p.name in keep or p.name not in results)
    others = tuple(p for p in target.params if p.name not in results)
    return closed(Kernel(_outputs_last(union(gone, others)), body), _both(producer, reader))


def _row_places(
    loops: tuple[Loop, ...], inner: tuple[Stmt, ...], results: tuple[str, ...]
) -> dict[str, tuple[IndexEntry, ...]] | No:
    """Where each result is stored, if each is stored once per row, at the top level of the row."""
    if any(loop.role is not Role.MAP for loop in loops):
        return No("the producer's loops are not independent")
    places: dict[str, tuple[IndexEntry, ...]] = {}
    for result in results:
        stores = [s for s in inner if isinstance(s, Store) and s.buffer == result]
        inside = [s for s in walk(inner) if isinstance(s, Store) and s.buffer == result]
        if len(stores) != 1 or len(inside) != 1 or stores[0].combine != "set":
            return No(f"{result} is not one value per row")
        places[result] = stores[0].index
    return places


def _outputs_last(params: tuple[Param, ...]) -> tuple[Param, ...]:
    ins = tuple(p for p in params if p.access is Access.IN)
    return (*ins, *(p for p in params if p.access is not Access.IN))


def _both(first: Launch, second: Launch) -> Launch:
    origins = tuple(dict.fromkeys((*first.origins, *second.origins)))
    label = "+".join(
        dict.fromkeys(filter(None, (*first.label.split("+"), *second.label.split("+"))))
    )
    return replace(second, origins=origins, label=label)


def same_place(
    index: tuple[IndexEntry, ...], other: tuple[IndexEntry, ...], shape: tuple[Dim, ...]
) -> bool:
    """Whether two indices of a buffer name the same element; axes of extent 1 do not matter."""
    if not len(index) == len(other) == len(shape):
        return False
    pairs = zip(index, other, shape, strict=True)
    return all(a == b or extent == 1 for a, b, extent in pairs)


# --- facts about kernels -----------------------------------------------------------------------------


def size(kernel: Kernel) -> int:
    """Distinct scalar nodes of a kernel."""
    seen: set[Scalar] = set()
    for stmt in walk(kernel.body):
        match stmt:
            case Store() | Let():
                seen.update(postorder(stmt.value))
            case Fold():
                seen.update(postorder(*stmt.values))
            case _:
                pass
    return len(seen)


def folds(kernel: Kernel) -> bool:
    """Whether the kernel reduces."""
    return any(isinstance(s, Fold) for s in walk(kernel.body))


def contracts(kernel: Kernel) -> bool:
    """Whether the kernel sums products of two loads: a candidate for a tile instruction."""
    return any(
        isinstance(s, Fold) and s.monoid == "sum" and any(_product(v) for v in s.values)
        for s in walk(kernel.body)
    )


def _product(value: Scalar) -> bool:
    if not isinstance(value, Call) or value.fn != "mul":
        return False
    a, b = value.args
    return a is not b and all(any(isinstance(n, Load) for n in postorder(x)) for x in (a, b))


def _constant_like(value: Scalar) -> bool:
    """Whether a scalar reads nothing."""
    return not any(isinstance(n, Load) for n in postorder(value))


def evaluations(reader: Launch, result: str) -> float:
    """How often the reader evaluates each element of `result`: points of the loops around its loads per element.

    Symbolic extents count as `TYPICAL`, since only the ratio matters.
    """
    param = next(p for p, a in zip(reader.kernel.params, reader.args, strict=True) if a == result)
    elements = max(1, _typical(prod(param.shape)))
    return _points(reader.kernel.body, param.name, 1) / elements


def _points(body: tuple[Stmt, ...], buffer: str, around: int) -> int:
    total = 0
    for stmt in body:
        match stmt:
            case Loop():
                total += _points(stmt.body, buffer, around * max(1, _typical(stmt.extent)))
            case Fold():
                inside = around
                for axis in stmt.axes:
                    inside *= max(1, _typical(axis.extent))
                total += _points(stmt.body, buffer, inside)
                total += inside * _sites(stmt.values, buffer)
            case _:
                total += around * _sites(scalars(stmt), buffer)
    return total


def _sites(values: tuple[Scalar, ...], buffer: str) -> int:
    return len({load for v in values for load in loads(v) if load.buffer == buffer})


def _typical(extent: Dim) -> int:
    return evaluate(extent, dict.fromkeys(symbols(extent), TYPICAL))


def movement_hurts(producer: Launch, reader: Launch) -> bool:
    """Whether a producer's gather would be repeated along a fold of the reader (windows, normalisations)."""
    found = map_store(producer.kernel)
    assert found is not None
    gathers = any(
        isinstance(e, Scalar) for load in all_loads(producer.kernel.body) for e in load.index
    )
    return gathers and folds(reader.kernel)
