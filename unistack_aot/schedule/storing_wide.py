"""Schedule operator: buffers of narrow floats held in f32, so that kernels read what they compute with.

Every stored value stays rounded to the narrow type. Not here: which buffers (wide_storage.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from unistack_aot.base.dtypes import DType, f32
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Call, Cast, Lit, Load, Scalar, call, cast, literal, transform
from unistack_aot.mcir.canonical import closed, opened
from unistack_aot.mcir.nodes import Stmt, Store
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import map_scalars, rewrite, walk
from unistack_aot.schedule.narrow_floats import WIDEN
from unistack_aot.schedule.operator import Kernels, Operator, launch_of, or_same


def can_store_wide(launches: Sequence[Launch], chosen: Collection[str]) -> Yes | No:
    """Whether the chosen buffers hold narrow floats and are only set, never added to."""
    for launch in launches:
        kernel = opened(launch)
        for param in kernel.params:
            if param.name in chosen and not param.dtype.is_narrow:
                return No(f"{param.name} holds {param.dtype}")
        for stmt in walk(kernel.body):
            if isinstance(stmt, Store) and stmt.buffer in chosen and stmt.combine != "set":
                return No(f"{stmt.buffer} is added to, and each sum is rounded")
    return YES if chosen else No("nothing is chosen")


def stored_wide(launches: Sequence[Launch], chosen: Collection[str]) -> tuple[Launch, ...]:
    """The launches with the chosen buffers in f32, whose values are rounded before they are stored.

    before:
        kernel relu(x: f16[N, 8] far) -> t: f16[N, 8] far {
          for i in N, k in 8 {
            t[i, k] = max(x[i, k], 0.0)
          }
        }
        kernel product(t: f16[N, 8] far, w: f16[8, M] far) -> y: f16[N, M] far {
          for i in N, j in M {
            s = fold sum over k in 8 of f32(t[i, k]) * f32(w[k, j])
            y[i, j] = f16(s)
          }
        }
    after:
        kernel k0(x: f16[N, 8] far) -> t: f32[N, 8] far {
          for i0 in N, i1 in 8 {
            t[i0, i1] = f32(f16(max(f32(x[i0, i1]), 0.0)))
          }
        }

        kernel k1(t: f32[N, 8] far, w: f16[8, M] far) -> y: f16[N, M] far {
          for i0 in N, i1 in M {
            i3 = fold sum over i2 in 8 of t[i0, i2] * f32(w[i2, i1])
            y[i0, i1] = f16(i3)
          }
        }
    """
    return tuple(_converted(launch, chosen) for launch in launches)


def _converted(launch: Launch, chosen: Collection[str]) -> Launch:
    """The launch with f32 in place of the chosen buffers' type."""
    if not any(name in chosen for name in launch.args):
        return launch
    kernel = opened(launch)
    kernel = or_same(WIDEN(kernel), kernel)
    narrow = {p.name: p.dtype for p in kernel.params if p.name in chosen}

    def change(node: Scalar) -> Scalar | None:
        if isinstance(node, Load) and node.buffer in narrow:
            return cast(node.dtype, Load(node.buffer, node.index, f32))
        if isinstance(node, Cast) and node.value.dtype.is_narrow and node.dtype.bits > 16:
            return cast(node.dtype, _wide(node.value, narrow)) if node.dtype.is_float else None
        return None

    def written(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Store) or stmt.buffer not in narrow:
            return None
        return replace(stmt, value=_wide(stmt.value, narrow))

    body = rewrite(map_scalars(kernel.body, lambda value: transform(value, change)), written)
    params = tuple(replace(p, dtype=f32 if p.name in narrow else p.dtype) for p in kernel.params)
    return closed(replace(kernel, params=params, body=body), launch)


def _wide(value: Scalar, narrow: Mapping[str, DType]) -> Scalar:
    """The f32 scalar that equals one of a narrow type; elements of `narrow` buffers have that type's values already."""
    match value:
        case Cast(value=Load(buffer=buffer) as held) if narrow.get(buffer) is value.dtype:
            return held
        case Lit():
            rounded = value.dtype.numpy.type(value.value)
            return literal(float(rounded), f32)
        case Call() if value.fn == "where":
            condition, yes, no = value.args
            return call("where", condition, _wide(yes, narrow), _wide(no, narrow))
        case _:
            return cast(f32, value)


def _example(kernels: Kernels) -> Kernels | No:
    found = STORE_WIDE(tuple(map(launch_of, kernels)), {"t"})
    return found if isinstance(found, No) else tuple(opened(launch) for launch in found)


STORE_WIDE = Operator("store-wide", can_store_wide, stored_wide, _example)
