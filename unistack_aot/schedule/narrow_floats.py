"""f16 and bf16 are storage types here: arithmetic on them happens in f32 and is rounded after each function."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.dtypes import DType, f32
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Call, Name, Scalar, cast, postorder, transform
from unistack_aot.ir.scalar import call as apply
from unistack_aot.mcir.monoids import MONOIDS
from unistack_aot.mcir.nodes import Fold, Kernel, Stmt
from unistack_aot.mcir.transform import map_scalars, rewrite, scalars, walk
from unistack_aot.schedule.operator import Kernels, Operator


def can_widen(kernel: Kernel) -> Yes | No:
    """Whether a function or fold of narrow floats is there."""
    for stmt in walk(kernel.body):
        if isinstance(stmt, Fold) and any(field.is_narrow for field in _fields(stmt)):
            return YES
        for node in postorder(*scalars(stmt)):
            if isinstance(node, Call) and node.fn != "where" and _narrow_args(node):
                return YES
    return No("no function takes narrow floats")


def widened(kernel: Kernel) -> Kernel:
    """The kernel with every function of narrow floats computed in f32.

    before:
        kernel scale(x: f16[N] far) -> y: f16[N] far {
              for i in N {
                y[i] = x[i] * x[i] + 1.0
              }
            }
    after:
        kernel k0(x: f16[N] far) -> y: f16[N] far {
          for i in N {
            y[i] = f16(f32(f16(f32(x[i]) * f32(x[i]))) + f32(1.0:f16))
          }
        }
    """
    body = rewrite(kernel.body, _wide_fold)
    states = {
        state: dtype
        for stmt in walk(kernel.body)
        if isinstance(stmt, Fold)
        for state, dtype in zip(stmt.states, _fields(stmt), strict=True)
        if dtype.is_narrow
    }
    return kernel.with_body(map_scalars(body, lambda value: transform(value, _Widen(states))))


def _fields(fold: Fold) -> tuple[DType, ...]:
    """The types of a fold's states."""
    return MONOIDS[fold.monoid].fields(tuple(v.dtype for v in fold.values))


def _narrow_args(node: Call) -> bool:
    return any(arg.dtype.is_narrow for arg in node.args)


class _Widen:
    """Rewrites one node; `states` are fold states that are kept in f32."""

    def __init__(self, states: dict[str, DType]) -> None:
        self.states = states

    def __call__(self, node: Scalar) -> Scalar | None:
        if isinstance(node, Name) and node.name in self.states and node.dtype.is_narrow:
            return cast(node.dtype, Name(node.name, f32))
        if not isinstance(node, Call) or node.fn == "where":
            return None
        if not _narrow_args(node):
            return None
        args = tuple(cast(f32, a) if a.dtype.is_narrow else a for a in node.args)
        result = apply(node.fn, *args)
        return cast(node.dtype, result) if node.dtype.is_narrow else result


def _wide_fold(stmt: Stmt) -> Stmt | None:
    """A fold whose state would be narrow takes f32 inputs."""
    if not isinstance(stmt, Fold):
        return None
    if not any(field.is_narrow for field in _fields(stmt)):
        return None
    values = tuple(cast(f32, v) if v.dtype.is_narrow else v for v in stmt.values)
    return replace(stmt, values=values)


def _example(kernels: Kernels) -> Kernels | No:
    found = WIDEN(kernels[0])
    return found if isinstance(found, No) else (found,)


WIDEN = Operator("widen", can_widen, widened, _example)
