"""An operator: a result takes the memory of an operand. Not here: where nobody needs the operand (memory_reuse.py)."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import Ranges
from unistack_aot.base.verdict import No, Yes
from unistack_aot.mcir.nodes import Access, Kernel
from unistack_aot.mcir.touches import updates
from unistack_aot.mcir.transform import rename_buffers
from unistack_aot.schedule.operator import Kernels, Operator


def can_update(kernel: Kernel, source: str, result: str, ranges: Ranges) -> Yes | No:
    """Whether a result may overwrite an operand: alike in memory, and each element read before it is overwritten."""
    a, b = kernel.param(source), kernel.param(result)
    if a.access is not Access.IN or b.access is not Access.OUT:
        return No(f"{result} is not a result beside operand {source}")
    if (a.dtype, a.shape, a.layout) != (b.dtype, b.shape, b.layout):
        return No(f"{source} and {result} differ in type or layout")
    return updates(kernel, source, result, ranges)


def updated(kernel: Kernel, source: str, result: str, ranges: Ranges) -> Kernel:
    """The kernel that finds an operand in its result's memory, and overwrites it.

    before:
        kernel k(x: f32[N, 8] far, z: f32[8, N] far) -> y: f32[N, 8] far {
          for i in N role=grid {
            s = fold sum over k in 8 role=vector of x[i, k]
            for j in 8 role=vector {
              y[i, j] = x[i, j] / s + z[j, i]
            }
          }
        }
    after:
        kernel k0(z: f32[8, N] far) -> inout y: f32[N, 8] far {
          for i in N role=grid {
            s = fold sum over k in 8 role=vector of y[i, k]
            for j in 8 role=vector {
              y[i, j] = y[i, j] / s + z[j, i]
            }
          }
        }
    """
    params = tuple(
        replace(p, access=Access.INOUT) if p.name == result else p
        for p in kernel.params
        if p.name != source
    )
    body = rename_buffers(kernel.body, {source: result})
    return replace(kernel, params=params, body=body)


def _example(kernels: Kernels) -> Kernels | No:
    found = UPDATE(kernels[0], "x", "y", {})
    return found if isinstance(found, No) else (found,)


UPDATE = Operator("update-in-place", can_update, updated, _example)
