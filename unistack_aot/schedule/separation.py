"""Schedule operator: several nests become several kernels, as there is no barrier across a whole grid.

Not here: loops that are one nest (many_narrow.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.mcir.nodes import Access, Kernel, Loop, Param, Stmt, Store
from unistack_aot.mcir.transform import all_loads, walk
from unistack_aot.schedule.operator import Operator


def can_separate(kernel: Kernel) -> Yes | No:
    """Whether the kernel is several nests of loops."""
    several = len(kernel.body) > 1 and all(isinstance(stmt, Loop) for stmt in kernel.body)
    return YES if several else No("it is one nest")


def separated(kernel: Kernel) -> tuple[Kernel, ...]:
    """A kernel for each of several nests, one after the other.

    before:
        kernel join(x: f32[4] far, z: f32[2] far) -> y: f32[6] far {
              for i in 4 {
                y[i] = x[i]
              }
              for j in 2 {
                y[j + 4] = z[j]
              }
            }
    after:
        kernel k0(x: f32[4] far) -> y: f32[6] far {
          for i in 4 {
            y[i] = x[i]
          }
        }

        kernel k1(z: f32[2] far) -> inout y: f32[6] far {
          for j in 2 {
            y[j + 4] = z[j]
          }
        }
    """
    nests = [(stmt,) for stmt in kernel.body]
    return tuple(_part(kernel, nest, _written(kernel.body[:k])) for k, nest in enumerate(nests))


def _part(kernel: Kernel, body: tuple[Stmt, ...], before: set[str]) -> Kernel:
    """A kernel with only the parameters that `body` uses; results that hold something of `before` are updated."""
    read = {load.buffer for load in all_loads(body)}
    written = {stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)}
    partial = {s.buffer for s in walk(body) if isinstance(s, Store) and s.combine != "set"}
    params: list[Param] = []
    for param in kernel.params:
        if param.name in written:
            both = param.name in read | partial | before
            params.append(replace(param, access=Access.INOUT if both else Access.OUT))
        elif param.name in read:
            params.append(replace(param, access=Access.IN))
    return replace(kernel, params=tuple(params), body=body)


def _written(body: tuple[Stmt, ...]) -> set[str]:
    return {stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)}


SEPARATE = Operator("separate", can_separate, separated, lambda kernels: SEPARATE(kernels[0]))
