"""Programs run by numpy: layouts, aliases, branches, loops, memory that nobody wrote."""

from __future__ import annotations

import numpy as np
import pytest

from unistack_aot.base.dtypes import bool_, f32, i64
from unistack_aot.base.errors import BadInput, IRError
from unistack_aot.base.symbolic import Dim, symbol
from unistack_aot.ir.scalar import Load, Scalar, literal
from unistack_aot.mcir.layout import PLAIN, Layout
from unistack_aot.mcir.nodes import Access, Kernel, Loop, Param, Stmt, Store
from unistack_aot.mcir.program import (
    Buffer,
    Carried,
    HostCopy,
    HostIf,
    HostLoop,
    HostRefuse,
    Kind,
    Launch,
    Program,
    Sliced,
    Step,
)
from unistack_aot.mcir.run import run_program

ROW, J, N = symbol("i"), symbol("j"), symbol("rows")


def mapped(shape: tuple[Dim, ...], value: Scalar, source: Layout, target: Layout) -> Kernel:
    """y[i, j] = value over x[i, j]."""
    body: tuple[Stmt, ...] = (Store("y", (ROW, J)[: len(shape)], value),)
    for var, extent in zip(("j", "i")[-len(shape) :], reversed(shape), strict=True):
        body = (Loop(var, extent, body),)
    params = (Param("x", f32, shape, layout=source), Param("y", f32, shape, Access.OUT, target))
    return Kernel(params, body)


def plus(amount: float, shape: tuple[Dim, ...] = (3,)) -> Kernel:
    index = (ROW, J)[: len(shape)]
    return mapped(shape, Load("x", index, f32) + literal(amount, f32), PLAIN, PLAIN)


def program(buffers: tuple[Buffer, ...], *steps: Step) -> Program:
    return Program("test", buffers, steps)


def test_layouts_move_elements_and_padding_starts_unwritten() -> None:
    """A 2x5 tensor in blocks of 4 with a halo, written through one kernel and read by another."""
    laid = Layout((1, 4), ((1, 0), (0, 0)))
    copy = mapped((2, 5), Load("x", (ROW, J), f32), PLAIN, laid)
    back = mapped((2, 5), Load("x", (ROW, J), f32), laid, PLAIN)
    buffers = (
        Buffer("x", f32, (2, 5), Kind.INPUT),
        Buffer("t", f32, (2, 5), layout=laid),
        Buffer("y", f32, (2, 5), Kind.OUTPUT),
    )
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    seen: dict[str, np.ndarray] = {}
    steps = (Launch(copy, ("x", "t")), Launch(back, ("t", "y")))
    found = run_program(program(buffers, *steps), {"x": x}, {}, {}, seen.__setitem__)
    np.testing.assert_array_equal(found["y"], x)
    np.testing.assert_array_equal(seen["t"], x)
    outside = mapped((2, 5), Load("x", (ROW - 1, J), f32), laid, PLAIN)
    found = run_program(program(buffers, steps[0], Launch(outside, ("t", "y"))), {"x": x}, {}, {})
    assert np.isnan(found["y"][0]).all()
    np.testing.assert_array_equal(found["y"][1], x[0])


def test_reading_outside_the_memory_is_an_error() -> None:
    kernel = mapped((3,), Load("x", (ROW + 1,), f32), PLAIN, PLAIN)
    buffers = (Buffer("x", f32, (3,), Kind.INPUT), Buffer("y", f32, (3,), Kind.OUTPUT))
    with pytest.raises(IRError, match="leaves the 3 elements of axis 0"):
        run_program(
            program(buffers, Launch(kernel, ("x", "y"))), {"x": np.ones(3, np.float32)}, {}, {}
        )


def test_aliases_share_memory_at_an_offset() -> None:
    """The second half of t, under another shape, is what y receives."""
    buffers = (
        Buffer("x", f32, (N,), Kind.INPUT),
        Buffer("t", f32, (N,)),
        Buffer("half", f32, (N // 2,), alias_of="t", offset=N // 2),
        Buffer("y", f32, (N // 2,), Kind.OUTPUT),
    )
    steps = (Launch(plus(1, (N,)), ("x", "t")), Launch(plus(1, (N // 2,)), ("half", "y")))
    x = np.arange(6, dtype=np.float32)
    found = run_program(program(buffers, *steps), {"x": x}, {}, {"rows": 6})
    np.testing.assert_array_equal(found["y"], x[3:] + 2)


def test_branches_copy_to_one_result() -> None:
    buffers = (
        Buffer("c", bool_, (), Kind.INPUT),
        Buffer("x", f32, (3,), Kind.INPUT),
        Buffer("t", f32, (3,)),
        Buffer("y", f32, (3,), Kind.OUTPUT),
    )
    then = (Launch(plus(1), ("x", "t")), HostCopy("t", "y"))
    chosen = program(buffers, HostIf("c", then, (HostCopy("x", "y"),)))
    x = np.ones(3, np.float32)
    for condition, want in ((True, 2), (False, 1)):
        found = run_program(chosen, {"c": np.array(condition), "x": x}, {}, {})
        np.testing.assert_array_equal(found["y"], np.full(3, want, np.float32))


def test_a_branch_may_refuse() -> None:
    buffers = (
        Buffer("c", bool_, (), Kind.INPUT),
        Buffer("x", f32, (3,), Kind.INPUT),
        Buffer("t", f32, (3,)),
        Buffer("y", f32, (3,), Kind.OUTPUT),
    )
    refusing = (HostRefuse("t", "rank 2 is not rank 3"), HostCopy("t", "y"))
    chosen = program(buffers, HostIf("c", (HostCopy("x", "y"),), refusing))
    x = np.ones(3, np.float32)
    found = run_program(chosen, {"c": np.array(True), "x": x}, {}, {})
    np.testing.assert_array_equal(found["y"], x)
    with pytest.raises(BadInput, match="rank 2 is not rank 3"):
        run_program(chosen, {"c": np.array(False), "x": x}, {}, {})


def test_loops_carry_and_stack() -> None:
    """Three iterations over reversed slices: state += slice, and each state is stacked."""
    both = (Param("a", f32, (3,)), Param("b", f32, (3,)), Param("c", f32, (3,), Access.OUT))
    total = Load("a", (ROW,), f32) + Load("b", (ROW,), f32)
    add = Kernel(both, (Loop("i", 3, (Store("c", (ROW,), total),)),))
    buffers = (
        Buffer("x", f32, (N, 3), Kind.INPUT),
        Buffer("start", f32, (3,), Kind.INPUT),
        *(Buffer(name, f32, (3,)) for name in ("entry", "exit", "slice", "row")),
        Buffer("count", i64, ()),
        Buffer("last", f32, (3,), Kind.OUTPUT),
        Buffer("rows", f32, (N, 3), Kind.OUTPUT),
    )
    loop = HostLoop(
        trips=N,
        condition=None,
        next_condition=None,
        iteration="count",
        carried=(Carried("start", "entry", "exit", "last"),),
        scanned=(Sliced("x", "slice", True),),
        stacked=(Sliced("rows", "row"),),
        body=(Launch(add, ("entry", "slice", "exit")), HostCopy("exit", "row")),
    )
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    start = np.full(3, 10, np.float32)
    for count in (3, 0):
        feeds = {"x": x[:count], "start": start}
        found = run_program(program(buffers, loop), feeds, {}, {"rows": count})
        np.testing.assert_array_equal(found["rows"], start + np.cumsum(x[:count][::-1], 0))
        np.testing.assert_array_equal(found["last"], start + x[:count].sum(0))
