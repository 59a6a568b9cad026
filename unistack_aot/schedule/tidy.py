"""Small simplifications of kernels before they are fused: loops of one iteration, constants of one element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from unistack_aot.ir.scalar import Lit, Load, Scalar, literal
from unistack_aot.mcir.canonical import closed, opened
from unistack_aot.mcir.nodes import Access, Fold, Kernel, Loop, Role, Stmt
from unistack_aot.mcir.program import Launch, Program
from unistack_aot.mcir.transform import all_loads, replace_loads, rewrite, substitute_vars


def tidy_kernels(program: Program, constants: Mapping[str, NDArray[Any]]) -> Program:
    """Every launch without unit loops, and with one-element constants as literals."""
    values: dict[str, Any] = {}
    for buffer in program.buffers:
        if buffer.constant is not None:
            array = constants[buffer.constant]
            if array.size == 1:
                values[buffer.name] = array.reshape(-1)[0].item()

    def change(launch: Launch) -> Launch:
        kernel = with_literals(without_unit_loops(opened(launch)), values)
        return closed(kernel, launch)

    return program.map_launches(change)


def without_unit_loops(kernel: Kernel) -> Kernel:
    """Independent loops of one iteration replaced by their body; unit axes of folds dropped while others remain."""

    def change(stmt: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        match stmt:
            case Loop(extent=1, role=Role.MAP):
                return substitute_vars(stmt.body, {stmt.var: 0})
            case Fold():
                return _fewer_axes(stmt)
            case _:
                return None

    return kernel.with_body(rewrite(kernel.body, change))


def _fewer_axes(fold: Fold) -> Fold | None:
    kept = tuple(axis for axis in fold.axes if axis.extent != 1) or fold.axes[:1]
    gone = [axis for axis in fold.axes if axis not in kept]
    if not gone:
        return None
    inner = Fold(fold.states, fold.monoid, kept, fold.values, fold.body, fold.role)
    (fresh,) = substitute_vars((inner,), {axis.var: 0 for axis in gone})
    assert isinstance(fresh, Fold)
    return fresh


def with_literals(kernel: Kernel, values: Mapping[str, Any]) -> Kernel:
    """Loads of one-element constants as literals."""

    def change(load: Load) -> Scalar | None:
        if load.buffer not in values:
            return None
        value: Lit = literal(values[load.buffer], load.dtype)
        return value

    if not any(p.name in values for p in kernel.params):
        return kernel
    body = replace_loads(kernel.body, change)
    names = {load.buffer for load in all_loads(body)}
    params = tuple(p for p in kernel.params if p.access is not Access.IN or p.name in names)
    return Kernel(params, body, kernel.reinterprets)
