"""Schedule operator: buffers in the narrow type to which all their readers round them.

Not here: which buffers (narrow_storage.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from unistack_aot.base.dtypes import DType, bf16
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Cast, Load, Scalar, cast, postorder
from unistack_aot.mcir.canonical import closed, opened
from unistack_aot.mcir.nodes import Access, Kernel, Stmt, Store
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import all_loads, replace_loads, rewrite, scalars, walk
from unistack_aot.schedule.operator import Kernels, Operator, launch_of

Takes = Callable[[Kernel, str], DType | None]
"""The type to which a kernel (parameters named as buffers) rounds all it reads of a buffer; None if it does not."""


def can_store_narrow(
    launches: Sequence[Launch], chosen: Mapping[str, DType], takes: Takes
) -> Yes | No:
    """Whether each chosen buffer is written once, and rounded to its type by all that read it."""
    for name, dtype in chosen.items():
        writers = [launch for launch in launches if name in launch.writes()]
        readers = [launch for launch in launches if name in launch.reads()]
        if len(writers) != 1 or not readers:
            return No(f"{name} is not written once and read")
        if not _plainly_written(writers[0], name):
            return No(f"{name} is read or added to while it is written")
        if opened(writers[0]).param(name).dtype.bits <= dtype.bits:
            return No(f"{dtype} is no narrower than {name}")
        if any(takes(opened(launch), name) is not dtype for launch in readers):
            return No(f"not every reader rounds {name} to {dtype}")
    return YES if chosen else No("nothing is chosen")


def stored_narrow(
    launches: Sequence[Launch], chosen: Mapping[str, DType], takes: Takes
) -> tuple[Launch, ...]:
    """The launches with buffers in the narrow types to which all readers round them.

    before:
        kernel relu(x: f32[N, 8] far) -> t: f32[N, 8] far {
          for i in N, k in 8 {
            t[i, k] = max(x[i, k], 0.0)
          }
        }
        kernel product(t: f32[N, 8] far, w: f32[8, M] far) -> y: f32[N, M] far {
          for i in N, j in M {
            s = fold sum over k in 8 of f32(bf16(t[i, k])) * w[k, j]
            y[i, j] = s
          }
        }
    after:
        kernel k0(x: f32[N, 8] far) -> t: bf16[N, 8] far {
          for i0 in N, i1 in 8 {
            t[i0, i1] = bf16(max(x[i0, i1], 0.0))
          }
        }

        kernel k1(t: bf16[N, 8] far, w: f32[8, M] far) -> y: f32[N, M] far {
          for i0 in N, i1 in M {
            i3 = fold sum over i2 in 8 of f32(bf16(f32(t[i0, i2]))) * w[i2, i1]
            y[i0, i1] = i3
          }
        }
    """
    return tuple(_converted(launch, chosen) for launch in launches)


def _plainly_written(launch: Launch, name: str) -> bool:
    kernel = opened(launch)
    stores = [s for s in walk(kernel.body) if isinstance(s, Store) and s.buffer == name]
    return (
        not kernel.reinterprets
        and kernel.param(name).access is Access.OUT
        and all(store.combine == "set" for store in stores)
        and all(load.buffer != name for load in all_loads(kernel.body))
    )


def _converted(launch: Launch, chosen: Mapping[str, DType]) -> Launch:
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


def _rounded(kernel: Kernel, name: str) -> DType | None:
    """bf16 where the only use of a buffer's elements is a cast to it."""
    nodes = [n for stmt in walk(kernel.body) for n in postorder(*scalars(stmt))]
    casts = {n.value for n in nodes if isinstance(n, Cast) and n.dtype is bf16}
    loads = {n for n in nodes if isinstance(n, Load) and n.buffer == name}
    return bf16 if loads <= casts else None


def _example(kernels: Kernels) -> Kernels | No:
    found = STORE_NARROW(tuple(map(launch_of, kernels)), {"t": bf16}, _rounded)
    if isinstance(found, No):
        return found
    return tuple(opened(launch) for launch in found)


STORE_NARROW = Operator("store-narrow", can_store_narrow, stored_narrow, _example)
