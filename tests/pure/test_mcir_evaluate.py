"""The kernel evaluator on hand-written kernels: order, masks, tiles, bounds."""

from __future__ import annotations

import numpy as np
import pytest

import unistack_aot.mcir.evaluate as module
from unistack_aot.base.dtypes import bool_, f32, i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, minimum, symbol
from unistack_aot.ir.scalar import IndexEntry, Load, Name, Scalar, index_value, literal, where
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.nodes import (
    Access,
    Axis,
    Contract,
    Drain,
    Fold,
    Kernel,
    Let,
    Loop,
    Param,
    Role,
    Space,
    Span,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    View,
    When,
)
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.text import print_kernel

R, J, K, N = (symbol(name) for name in "ijkN")


def load(buffer: str, *index: IndexEntry) -> Scalar:
    return Load(buffer, index, f32)


def run(
    body: tuple[Stmt, ...],
    shape: tuple[Dim, ...],
    arrays: dict[str, np.ndarray],
    access: Access = Access.OUT,
) -> np.ndarray:
    params = [Param(k, f32, tuple(a.shape)) for k, a in arrays.items() if k != "y"]
    kernel = Kernel((*params, Param("y", f32, shape, access)), body)
    return evaluate_kernel(kernel, arrays, {"N": 5})["y"]


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_sequential_loop_carries() -> None:
    step = Store("y", (R + 1,), load("y", R) + load("x", R))
    body = (Store("y", (0,), literal(0, f32)), Loop("i", 4, (step,), Role.SEQ))
    np.testing.assert_array_equal(run(body, (5,), {"x": ramp(4)}), [0, 0, 1, 3, 6])


def test_elements_never_written_show() -> None:
    body = (Loop("i", 2, (Store("y", (R,), literal(1, f32)),)),)
    np.testing.assert_array_equal(run(body, (3,), {}), [1, 1, np.nan])


@pytest.mark.parametrize(("combine", "total"), [("add", 10), ("max", 4), ("min", 0), ("mul", 0)])
def test_combining_store_meets_every_point(combine: str, total: float) -> None:
    body = (Loop("i", 5, (Store("y", (0,), load("x", R), combine),)),)
    start = np.full(1, 0 if combine == "add" else 1, np.float32)
    found = run(body, (1,), {"x": ramp(5), "y": start}, Access.INOUT)
    assert found[0] == total


def test_index_outside_is_an_error() -> None:
    body = (Loop("i", 4, (Store("y", (R,), load("x", R + 1)),)),)
    with pytest.raises(IRError, match=r"index i \+ 1 leaves the 4 elements of axis 0 of x"):
        run(body, (4,), {"x": ramp(4)})
    with pytest.raises(IRError, match="leaves the 3 elements of axis 0 of y"):
        run((Loop("i", 4, (Store("y", (R,), load("x", R)),)),), (3,), {"x": ramp(4)})


def test_guarded_load_may_be_outside() -> None:
    value = where(index_value(R) < 3, load("x", R + 1), 0)
    body = (Loop("i", 4, (Store("y", (R,), value),)),)
    np.testing.assert_array_equal(run(body, (4,), {"x": ramp(4)}), [1, 2, 3, 0])


def test_guard_of_one_use_does_not_excuse_another() -> None:
    risky = load("x", R + 1)
    value = where(index_value(R) < 3, risky, 0) + risky
    with pytest.raises(IRError, match="leaves the 4 elements"):
        run((Loop("i", 4, (Store("y", (R,), value),)),), (4,), {"x": ramp(4)})


def test_when_masks_both_sides() -> None:
    condition = index_value(R) < 2
    body = (
        Loop(
            "i",
            N,
            (
                When(
                    condition,
                    (Store("y", (R,), load("x", R + 3)),),
                    (Store("y", (R,), load("x", R - 2)),),
                ),
            ),
        ),
    )
    np.testing.assert_array_equal(run(body, (5,), {"x": ramp(5)}), [3, 4, 0, 1, 2])


def test_extent_that_depends_on_an_outer_loop() -> None:
    inner = Loop("j", minimum(4, N - R), (Store("y", (R + J,), load("x", R + J)),))
    body = (Loop("i", N, (inner,), step=4),)
    np.testing.assert_array_equal(run(body, (5,), {"x": ramp(5)}), ramp(5))


def test_tile_is_private_and_lockstep() -> None:
    """Workers reverse a block through a near tile; each block has its own."""
    fill = Loop("i", 4, (Store("t", (R,), load("x", 4 * K + R)),), Role.GROUP)
    read = Loop("j", 4, (Store("y", (4 * K + J,), load("t", 3 - J)),), Role.GROUP)
    body = (Loop("k", 2, (Tile("t", f32, (4,), Space.NEAR), fill, Sync(), read), Role.GRID),)
    np.testing.assert_array_equal(run(body, (8,), {"x": ramp(8)}), [3, 2, 1, 0, 7, 6, 5, 4])


def test_contract_and_drain_stream_over_depth() -> None:
    a, b = ramp(5, 6), ramp(6, 3)
    rows, cols = Span("i", 4 * symbol("bi"), 4), Span("j", 0, 3)
    inside = index_value(R) < 5
    step = Contract(
        "acc",
        View("a", (R, K + symbol("k0")), inside),
        View("b", (K + symbol("k0"), J)),
        rows,
        cols,
        (Axis("k", 2),),
        "fma",
    )
    keep = When(inside, (Store("y", (R, J), Name("v", f32)),))
    body = (
        Loop(
            "bi",
            2,
            (
                Tile("acc", f32, (4, 3), Space.REG, 0.0),
                Stream("k0", 6, 2, 2, (step,)),
                Drain("acc", rows, cols, "v", (keep,)),
            ),
            Role.GRID,
        ),
    )
    np.testing.assert_array_equal(run(body, (5, 3), {"a": a, "b": b}), a @ b)


def test_contract_rounds_the_operand_that_says_so() -> None:
    """1 + 2^-9 has more bits than bf16 holds; read back from text, so that the text says it too."""
    text = """kernel k(a: f32[2, 3] far, b: f32[3, 2] far) -> y: f32[2, 2] far {
      t: f32[2, 2] reg = 0.0
      t[m in 0 ..+ 2, n in 0 ..+ 2] += contract(bf16(a[m, k]), b[k, n]) over k in 3 via dot
      drain t[m in 0 ..+ 2, n in 0 ..+ 2] as v {
        y[m, n] = v
      }
    }"""
    kernel = parse_kernel(text)
    assert "contract(bf16(a[m, k]), b[k, n])" in print_kernel(kernel)
    fine = np.full((2, 3), 1 + 2**-9, np.float32)
    found = evaluate_kernel(kernel, {"a": fine, "b": np.eye(3, 2, dtype=np.float32)}, {})["y"]
    np.testing.assert_array_equal(found, np.ones((2, 2), np.float32))


def test_nested_fold_is_evaluated_per_point() -> None:
    dot = Fold(("s",), "sum", (Axis("k", 4),), (load("x", R, K),))
    outer = Fold(("top",), "max", (Axis("i", 3),), (Name("s", f32),), (dot,))
    body = (outer, Let("twice", Name("top", f32) * 2), Store("y", (), Name("twice", f32)))
    assert run(body, (), {"x": ramp(3, 4)}) == 2 * (8 + 9 + 10 + 11)


def test_pieces_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = Fold(("s",), "sum", (Axis("j", 7), Axis("k", 5)), (load("x", R, J, K),))
    body = (Loop("i", 6, (fold, Store("y", (R,), Name("s", f32)))),)
    x = ramp(6, 7, 5)
    whole = run(body, (6,), {"x": x})
    monkeypatch.setattr(module, "LIMIT", 8)
    np.testing.assert_array_equal(run(body, (6,), {"x": x}), whole)
    np.testing.assert_array_equal(whole, x.sum(axis=(1, 2)))


def test_wrong_arrays_are_refused() -> None:
    kernel = Kernel((Param("x", f32, (N,)), Param("y", f32, (N,), Access.OUT)), ())
    with pytest.raises(IRError, match="x is f32"):
        evaluate_kernel(kernel, {"x": np.zeros(4, np.float32)}, {"N": 5})
    with pytest.raises(IRError, match="x is f32"):
        evaluate_kernel(kernel, {"x": np.zeros(5, np.float64)}, {"N": 5})


def test_data_dependent_index() -> None:
    kernel = Kernel(
        (
            Param("x", f32, (4,)),
            Param("at", i64, (3,)),
            Param("flag", bool_, (3,)),
            Param("y", f32, (3,), Access.OUT),
        ),
        (
            Loop(
                "i",
                3,
                (
                    Store(
                        "y",
                        (R,),
                        where(
                            Load("flag", (R,), bool_),
                            Load("x", (Load("at", (R,), i64),), f32),
                            -1,
                        ),
                    ),
                ),
            ),
        ),
    )
    arrays = {
        "x": ramp(4),
        "at": np.array([3, 0, 99], np.int64),
        "flag": np.array([True, True, False]),
    }
    np.testing.assert_array_equal(evaluate_kernel(kernel, arrays, {})["y"], [3, 0, -1])
    arrays["flag"][2] = True
    with pytest.raises(IRError, match="index from data leaves the 4 elements of axis 0 of x"):
        evaluate_kernel(kernel, arrays, {})
