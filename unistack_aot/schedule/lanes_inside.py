"""Schedule operator: one of several independent loops becomes the innermost one, cut to the length of a vector.

Not here: which loop, and which length (few_wide.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.verdict import No, Yes
from unistack_aot.mcir.nodes import Loop, Role
from unistack_aot.mcir.transform import around, perfect_nest
from unistack_aot.schedule.loops import SPLIT
from unistack_aot.schedule.operator import Kernels, Operator, on_loop


def can_move_inside(loop: Loop, var: str, size: int) -> Yes | No:
    """Whether the nest's loops are independent, and one of them is called `var`."""
    loops, _ = perfect_nest((loop,))
    if any(each.role is not Role.MAP for each in loops):
        return No("its loops are not independent")
    picked = next((each for each in loops if each.var == var), None)
    if picked is None:
        return No(f"no loop is called {var}")
    return SPLIT.check(picked, size, Role.MAP, Role.MAP)


def moved_inside(loop: Loop, var: str, size: int) -> Loop:
    """A nest with at most `size` iterations of one of its loops innermost, the rest of them where the loop was.

    before:
        kernel sums(x: f32[64, 20, 8] far) -> y: f32[64, 20] far {
              for i in 64, j in 20 {
                s = fold sum over k in 8 of x[i, j, k]
                y[i, j] = s
              }
            }
    after:
        kernel k0(x: f32[64, 20, 8] far) -> y: f32[64, 20] far {
          for i_o in 4, j in 20, i_i in 16 {
            s = fold sum over k in 8 of x[i_i + 16*i_o, j, k]
            y[i_i + 16*i_o, j] = s
          }
        }
    """
    loops, body = perfect_nest((loop,))
    place = next(k for k, each in enumerate(loops) if each.var == var)
    picked = loops[place]
    size = min(size, picked.extent) if isinstance(picked.extent, int) else size
    cut = SPLIT.sure(replace(picked, body=body), size, Role.MAP, Role.MAP)
    outer = (*loops[:place], replace(cut, body=()), *loops[place + 1 :])
    moved = around(outer, cut.body)[0]
    assert isinstance(moved, Loop)
    return moved


def _example(kernels: Kernels) -> Kernels | No:
    return on_loop(lambda _, loop: LANES_INSIDE(loop, "i", 16), kernels)


LANES_INSIDE = Operator("lanes-inside", can_move_inside, moved_inside, _example)
