"""f16 and bf16 are storage types here: arithmetic on them happens in f32 and is rounded after each function."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.dtypes import DType, f32
from unistack_aot.ir.scalar import Call, Name, Scalar, cast, transform
from unistack_aot.ir.scalar import call as apply
from unistack_aot.mcir.monoids import MONOIDS
from unistack_aot.mcir.nodes import Fold, Kernel, Stmt
from unistack_aot.mcir.transform import map_scalars, rewrite, walk


def is_narrow(dtype: DType) -> bool:
    """Whether a dtype has no arithmetic of its own."""
    return dtype.is_float and dtype.bits < 32


def widened(kernel: Kernel) -> Kernel:
    """The kernel with every function of narrow floats computed in f32.

    before:
        y[i] = add(x[i], x[i])
    after:
        y[i] = cast<f16>(add(cast<f32>(x[i]), cast<f32>(x[i])))
    """
    body = rewrite(kernel.body, _wide_fold)
    states = {
        state: dtype
        for stmt in walk(kernel.body)
        if isinstance(stmt, Fold)
        for state, dtype in zip(
            stmt.states,
            MONOIDS[stmt.monoid].fields(tuple(v.dtype for v in stmt.values)),
            strict=True,
        )
        if is_narrow(dtype)
    }
    return kernel.with_body(map_scalars(body, lambda value: transform(value, _Widen(states))))


class _Widen:
    """Rewrites one node; `states` are fold states that are kept in f32."""

    def __init__(self, states: dict[str, DType]) -> None:
        self.states = states

    def __call__(self, node: Scalar) -> Scalar | None:
        if isinstance(node, Name) and node.name in self.states and is_narrow(node.dtype):
            return cast(node.dtype, Name(node.name, f32))
        if not isinstance(node, Call) or node.fn == "where":
            return None
        if not any(is_narrow(a.dtype) for a in node.args):
            return None
        args = tuple(cast(f32, a) if is_narrow(a.dtype) else a for a in node.args)
        result = apply(node.fn, *args)
        return cast(node.dtype, result) if is_narrow(node.dtype) else result


def _wide_fold(stmt: Stmt) -> Stmt | None:
    """A fold whose state would be narrow takes f32 inputs."""
    if not isinstance(stmt, Fold):
        return None
    fields = MONOIDS[stmt.monoid].fields(tuple(v.dtype for v in stmt.values))
    if not any(map(is_narrow, fields)):
        return None
    values = tuple(cast(f32, v) if is_narrow(v.dtype) else v for v in stmt.values)
    return replace(stmt, values=values)
