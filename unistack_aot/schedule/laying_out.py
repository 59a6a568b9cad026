"""Schedule operator: parameters of a kernel in other layouts, with zeros wherever only padding is.

Not here: which buffers get which layout (layouts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from unistack_aot.base.symbolic import Dim, symbol
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import literal
from unistack_aot.mcir.layout import PLAIN, Layout
from unistack_aot.mcir.nodes import Access, Kernel, Loop, Param, Stmt, Store
from unistack_aot.schedule.operator import Kernels, Operator


def can_lay_out(kernel: Kernel, layouts: Mapping[str, Layout]) -> Yes | No:
    """Whether the parameters in question are plain, and the layouts have their axes."""
    if kernel.reinterprets:
        return No("it only gives a buffer another shape, which its memory has to fit")
    for param in kernel.params:
        layout = layouts.get(param.name, PLAIN)
        if layout.plain:
            continue
        if not param.layout.plain:
            return No(f"{param.name} is laid out already")
        rank = len(param.shape)
        if (layout.halo and len(layout.halo) != rank) or (layout.block and layout.block[0] >= rank):
            return No(f"{param.name} has {rank} axes")
    return YES


def laid_out(kernel: Kernel, layouts: Mapping[str, Layout]) -> Kernel:
    """The kernel over other layouts of its parameters; what only pads a result is zeroed at its end.

    before:
        kernel copy(x: f32[1, 12, 4] far) -> y: f32[1, 12, 4] far {
              for i in 12, j in 4 {
                y[0, i, j] = max(x[0, i, j], 0.0)
              }
            }
    after:
        kernel k0(x: f32[1, 12, 4] far) -> y: f32[1, 12, 4] far block(1, 8) halo(0, 0, 1) {
          for i in 12, j in 4 {
            y[0, i, j] = max(x[0, i, j], 0.0)
          }
          for z1_0_0 in 1, z1_0_1 in 12, z1_0_2 in 1 {
            y[z1_0_0, z1_0_1, z1_0_2 - 1] = 0.0
          }
          for z1_1_0 in 1, z1_1_1 in 12, z1_1_2 in 1 {
            y[z1_1_0, z1_1_1, z1_1_2 + 4] = 0.0
          }
          for z1_2_0 in 1, z1_2_1 in 4, z1_2_2 in 6 {
            y[z1_2_0, z1_2_1 + 12, z1_2_2 - 1] = 0.0
          }
        }
    """
    params = tuple(replace(p, layout=layouts.get(p.name, p.layout)) for p in kernel.params)
    zeros: list[Stmt] = []
    for number, param in enumerate(params):
        if param.access is not Access.IN and param.name in layouts:
            zeros += _zero_borders(param, f"z{number}")
    return replace(kernel, params=params, body=(*kernel.body, *zeros))


def _zero_borders(param: Param, prefix: str) -> list[Stmt]:
    """Loops that store zero to the halo and to the channels that only pad the last block."""
    layout, shape = param.layout, param.shape
    halo = list(layout.halo or ((0, 0),) * len(shape))
    padded = [-before for before, _ in halo]
    extents: list[Dim] = [
        e + before + after for e, (before, after) in zip(shape, halo, strict=True)
    ]
    zeros: list[Stmt] = []
    regions: list[tuple[int, Dim, int]] = []
    for axis, (before, after) in enumerate(halo):
        if before:
            regions.append((axis, -before, before))
        if after:
            regions.append((axis, shape[axis], after))
    if layout.block is not None:
        axis, size = layout.block
        extra = -shape[axis] % size  # type: ignore[operator]
        if isinstance(extra, int) and extra:
            regions.append((axis, shape[axis], extra))
    for number, (axis, first, count) in enumerate(regions):
        names = [f"{prefix}_{number}_{k}" for k in range(len(shape))]
        index: list[Dim] = [symbol(n) + low for n, low in zip(names, padded, strict=True)]
        index[axis] = symbol(names[axis]) + first
        body: tuple[Stmt, ...] = (Store(param.name, tuple(index), literal(0, param.dtype)),)
        for k in reversed(range(len(shape))):
            body = (Loop(names[k], count if k == axis else extents[k], body),)
        zeros += body
    return zeros


def _example(kernels: Kernels) -> Kernels | No:
    found = LAY_OUT(kernels[0], {"y": Layout((1, 8), ((0, 0), (0, 0), (1, 1)))})
    return found if isinstance(found, No) else (found,)


LAY_OUT = Operator("lay-out", can_lay_out, laid_out, _example)
