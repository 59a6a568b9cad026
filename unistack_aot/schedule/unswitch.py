"""Loops that treat some iterations apart: the choice is made once per iteration, not at every element inside.

Not here: guards of windows (clipping.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import (
    Call,
    Index,
    Lit,
    Load,
    Name,
    Scalar,
    index_symbols,
    postorder,
    transform,
)
from unistack_aot.mcir.nodes import Fold, Loop, Stmt, When
from unistack_aot.mcir.transform import map_scalars, scalars, walk
from unistack_aot.schedule.operator import Kernels, Operator, on_loop


def can_unswitch(loop: Loop) -> Yes | No:
    """Whether something inside the loop chooses between loads by the loop variable alone."""
    return No(f"{loop.var} alone chooses nothing inside") if _condition(loop) is None else YES


def unswitched(loop: Loop) -> Loop:
    """A condition on the loop variable alone hoisted out of everything inside the loop.

    before:
        kernel first(x: f32[8] far, z: f32[8] far) -> y: f32[9, 8] far {
          for t in 9 role=seq {
            for i in 8 {
              y[t, i] = where([t] == 0, x[i], z[i])
            }
          }
        }
    after:
        kernel k0(x: f32[8] far, z: f32[8] far) -> y: f32[9, 8] far {
          for t in 9 role=seq {
            when t == 0 {
              for i in 8 {
                y[t, i] = x[i]
              }
            } else {
              for i in 8 {
                y[t, i] = z[i]
              }
            }
          }
        }
    """
    condition = _condition(loop)
    assert condition is not None
    branches = [_taking(loop.body, condition, side) for side in (1, 2)]
    return replace(loop, body=(When(condition, *branches),))


def _condition(loop: Loop) -> Scalar | None:
    """The first condition of a `where` with loads, inside an inner loop or fold, that the loop variable decides."""
    loops = (stmt for stmt in walk(loop.body) if isinstance(stmt, Fold | Loop))
    inner = (each for stmt in loops for each in (stmt, *walk(stmt.body)))
    nodes = (node for each in inner for value in scalars(each) for node in postorder(value))
    for node in nodes:
        if isinstance(node, Call) and _decided(node, loop.var):
            return node.args[0]
    return None


def _decided(node: Call, var: str) -> bool:
    if node.fn != "where":
        return False
    condition = node.args[0]
    plain = all(isinstance(n, Call | Index | Lit) for n in postorder(condition))
    reads = any(isinstance(n, Load | Name) for arg in node.args[1:] for n in postorder(arg))
    return plain and reads and set(index_symbols(condition)) == {var}


def _taking(body: tuple[Stmt, ...], condition: Scalar, side: int) -> tuple[Stmt, ...]:
    def change(value: Scalar) -> Scalar | None:
        found = isinstance(value, Call) and value.fn == "where" and value.args[0] is condition
        return value.args[side] if found and isinstance(value, Call) else None

    return map_scalars(body, lambda value: transform(value, change))


def _example(kernels: Kernels) -> Kernels | No:
    return on_loop(lambda _, loop: UNSWITCH(loop), kernels)


UNSWITCH = Operator("unswitch", can_unswitch, unswitched, _example)
