"""Fusion of a map into the end of the kernel that produces its operand: applied before the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unistack_aot.base.symbolic import Dim
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Scalar, substitute_indices
from unistack_aot.mcir.canonical import closed, opened, union
from unistack_aot.mcir.nodes import Kernel, Loop, Stmt, Store
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import all_loads, map_store, replace_loads, rewrite, walk
from unistack_aot.schedule.merging import both, outputs_last, substituted
from unistack_aot.schedule.movement import inverse, keeps_rows, place
from unistack_aot.schedule.operator import Kernels, Operator, on_launches


@dataclass(frozen=True, slots=True)
class _Fit:
    """Both kernels with buffers as names, the two stores, the reader's variables by the place it reads."""

    source: Kernel
    target: Kernel
    written: Store
    store: Store
    env: Mapping[str, Dim]


def can_extend(producer: Launch, reader: Launch, result: str) -> Yes | No:
    """Whether the reader is a map that needs one element of the result for each of its own."""
    fit = _fit(producer, reader, result)
    return fit if isinstance(fit, No) else YES


def extended(producer: Launch, reader: Launch, result: str) -> Launch:
    """The producer storing what the reader (a map over the same indices) makes of its result.

    before:
        kernel sum(x: f32[N, 8] far) -> t: f32[N] far {
          for i in N {
            s = fold sum over j in 8 of x[i, j]
            t[i] = s
          }
        }
        kernel relu(t: f32[N] far) -> y: f32[N] far {
          for i in N {
            y[i] = max(t[i], 0.0)
          }
        }
    after:
        kernel k0(x0: f32[N, 8] far) -> y0: f32[N] far {
          for i0 in N {
            i2 = fold sum over i1 in 8 of x0[i0, i1]
            y0[i0] = max(i2, 0.0)
          }
        }
    """
    fit = _fit(producer, reader, result)
    assert not isinstance(fit, No)

    def change(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Store) or stmt.buffer != result:
            return None
        value = substitute_indices(fit.store.value, fit.env)
        index = tuple(
            e if isinstance(e, Scalar) else substituted(e, fit.env) for e in fit.store.index
        )
        (fresh,) = replace_loads(
            (Store(fit.store.buffer, index, value),),
            lambda load: fit.written.value if load.buffer == result else None,
        )
        return fresh

    body = rewrite(fit.source.body, change)
    gone = tuple(p for p in fit.source.params if p.name != result)
    others = tuple(p for p in fit.target.params if p.name != result)
    return closed(Kernel(outputs_last(union(gone, others)), body), both(producer, reader))


def _fit(producer: Launch, reader: Launch, result: str) -> _Fit | No:
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
    env = {var: substituted(value, at) for var, value in places.items()}
    return _Fit(source, target, written, store, env)


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
    index = tuple(substituted(e, places) for e in store.index if not isinstance(e, Scalar))
    if not keeps_rows(index, source, shape):
        return No("neighbours of the result would be stored apart")
    return places


def _example(kernels: Kernels) -> Kernels | No:
    return on_launches(lambda producer, reader: EPILOGUE(producer, reader, "t"), kernels)


EPILOGUE = Operator("epilogue", can_extend, extended, _example)
