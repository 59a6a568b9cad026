"""Schedule operators: neighbouring steps of a loop, or of a fold, as one wide step of a worker.

Not here: which accesses are wide, and how wide (vectors.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import Dim, Ranges, ceildiv, symbol
from unistack_aot.base.verdict import No, Yes
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Let, Loop, Role, Stmt
from unistack_aot.mcir.transform import substitute_vars
from unistack_aot.schedule.operator import Kernels, Operator, on_fold, on_loop
from unistack_aot.schedule.vectors import are_wide, is_straight


def can_vectorise(kernel: Kernel, loop: Loop, width: int, ranges: Ranges) -> Yes | No:
    """Whether each access of a loop of straight code takes `width` elements at once, or always the same one."""
    if loop.step != 1 or not is_straight(loop.body):
        return No("it holds more than straight code")
    return _wide(kernel, Axis(loop.var, loop.extent), loop.body, width, ranges)


def vectorised(kernel: Kernel, loop: Loop, width: int, ranges: Ranges) -> Loop:
    """A loop whose every step takes `width` neighbouring elements at once.

    before:
        kernel add(x: f32[64] far, b: f32[64] far) -> y: f32[64] far {
              for i in 64 {
                y[i] = x[i] + b[i]
              }
            }
    after:
        kernel k0(x: f32[64] far, b: f32[64] far) -> y: f32[64] far {
          for i_q in 16, i_v in 4 role=vector {
            y[4*i_q + i_v] = x[4*i_q + i_v] + b[4*i_q + i_v]
          }
        }
    """
    place, count, lane = _places(Axis(loop.var, loop.extent), width)
    body = substitute_vars(loop.body, {loop.var: place})
    wide = Loop(lane.var, width, body, Role.VECTOR)
    return replace(loop, var=count.var, extent=count.extent, body=(wide,))


def can_vectorise_fold(kernel: Kernel, fold: Fold, width: int, ranges: Ranges) -> Yes | No:
    """Whether each load of a fold along one axis takes `width` elements at once, or always the same one."""
    if fold.body or len(fold.axes) != 1:
        return No("it folds more than values along one axis")
    return _wide(kernel, fold.axes[0], _lets(fold), width, ranges)


def fold_vectorised(kernel: Kernel, fold: Fold, width: int, ranges: Ranges) -> Fold:
    """A fold whose every step takes `width` neighbouring elements at once.

    before:
        kernel sum(x: f32[N, 64] far) -> y: f32[N] far {
              for i in N {
                s = fold sum over j in 64 of x[i, j]
                y[i] = s
              }
            }
    after:
        kernel k0(x: f32[N, 64] far) -> y: f32[N] far {
          for i in N {
            s = fold sum over j_q in 16, j_v in 4 of x[i, 4*j_q + j_v]
            y[i] = s
          }
        }
    """
    (axis,) = fold.axes
    place, count, lane = _places(axis, width)
    lets = substitute_vars(_lets(fold), {axis.var: place})
    values = tuple(let.value for let in lets if isinstance(let, Let))
    return replace(fold, axes=(count, lane), values=values)


def _wide(
    kernel: Kernel, axis: Axis, body: tuple[Stmt, ...], width: int, ranges: Ranges
) -> Yes | No:
    if width < 2:
        return No(f"{width} elements at once")
    params = {param.name: param for param in kernel.params}
    return are_wide(params, body, axis.var, axis.extent, width, ranges)


def _places(axis: Axis, width: int) -> tuple[Dim, Axis, Axis]:
    """A variable's value by wide step and lane, and the axes of both."""
    count = Axis(f"{axis.var}_q", ceildiv(axis.extent, width))
    lane = Axis(f"{axis.var}_v", width)
    return symbol(count.var) * width + symbol(lane.var), count, lane


def _lets(fold: Fold) -> tuple[Stmt, ...]:
    """What a fold evaluates at each point, as statements."""
    return tuple(Let(f"v{k}", value) for k, value in enumerate(fold.values))


def _example(kernels: Kernels) -> Kernels | No:
    return on_loop(lambda kernel, loop: VECTORISE(kernel, loop, 4, {}), kernels)


def _example_fold(kernels: Kernels) -> Kernels | No:
    return on_fold(lambda kernel, fold: VECTORISE_FOLD(kernel, fold, 4, {}), kernels)


VECTORISE = Operator("vectorise", can_vectorise, vectorised, _example)
VECTORISE_FOLD = Operator("vectorise-fold", can_vectorise_fold, fold_vectorised, _example_fold)
