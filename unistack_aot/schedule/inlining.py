"""Fusion of a map into the kernels that read it: loads of its result become its expression."""

from __future__ import annotations

from unistack_aot.base.symbolic import Dim, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Load, Scalar, substitute_indices
from unistack_aot.mcir.canonical import closed, opened, union
from unistack_aot.mcir.nodes import Access, Kernel
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import all_loads, map_store, replace_loads
from unistack_aot.schedule.merging import both, loaded, substituted
from unistack_aot.schedule.movement import place, stored_places
from unistack_aot.schedule.operator import Kernels, Operator, on_launches


def can_inline(producer: Launch, reader: Launch, result: str) -> Yes | No:
    """Whether the producer computes each element by one expression, at a place that tells which."""
    found = map_store(producer.kernel)
    if found is None or len(producer.writes()) != 1:
        return No("the producer is not a map")
    if result not in reader.reads():
        return No(f"the reader does not read {result}")
    places = stored_places(*found, producer.kernel)
    if isinstance(places, No):
        return places
    taken_apart = {name for p in places.values() if not _bare(p) for name in symbols(p)}
    for load in all_loads(opened(reader).body):
        for axis, entry in enumerate(load.index if load.buffer == result else ()):
            if isinstance(entry, Scalar) and str(place(axis)) in taken_apart:
                return No("the reader's index depends on data, and has to be taken apart")
    return YES


def _bare(entry: Dim) -> bool:
    """Whether an index is one variable alone, or a number."""
    return isinstance(entry, int) or str(entry) in symbols(entry)


def inlined(producer: Launch, reader: Launch, result: str) -> Launch:
    """The reader with loads of `result` replaced by the producer's expression.

    before:
        kernel scale(x: f32[N, 8] far) -> t: f32[N, 8] far {
          for i in N, j in 8 {
            t[i, j] = x[i, j] * 0.5
          }
        }
        kernel add(t: f32[N, 8] far, b: f32[8] far) -> y: f32[N, 8] far {
          for i in N, j in 8 {
            y[i, j] = t[i, j] + b[j]
          }
        }
    after:
        kernel k0(x0: f32[8] far, x1: f32[N, 8] far) -> y0: f32[N, 8] far {
          for i0 in N, i1 in 8 {
            y0[i0, i1] = x1[i0, i1] * 0.5 + x0[i1]
          }
        }
    """
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
        whole = {var: e if isinstance(e, Scalar) else substituted(e, at) for var, e in env.items()}
        return substitute_indices(store.value, whole)

    body = replace_loads(target.body, change)
    params = [p for p in target.params if p.name != result]
    sources = tuple(p for p in source.params if p.access is Access.IN)
    outs = tuple(p for p in params if p.access is not Access.IN)
    ins = tuple(p for p in params if p.access is Access.IN)
    kept = loaded((*union(ins, sources), *outs), body)
    plain = target.reinterprets and source.reinterprets
    return closed(Kernel(kept, body, plain), both(producer, reader))


def _example(kernels: Kernels) -> Kernels | No:
    return on_launches(lambda producer, reader: INLINE(producer, reader, "t"), kernels)


INLINE = Operator("inline", can_inline, inlined, _example)
