"""What must not be taken for a contraction or split among workers, and names in generated code."""

from __future__ import annotations

import re

import numpy as np

from unistack_aot.base.dtypes import f32
from unistack_aot.base.symbolic import Dim, minimum, symbol
from unistack_aot.base.verdict import No
from unistack_aot.codegen.ctree import render
from unistack_aot.codegen.expr import identifier, size_name
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import Load, Name
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.nodes import Access, Axis, Fold, Kernel, Loop, Param, Role, Stmt, Store
from unistack_aot.schedule.contraction import Site, find_site
from unistack_aot.targets.cpu.printer import HostPrinter

ROW, J, K, N = (symbol(name) for name in ("i", "j", "k", "rows"))


def load(buffer: str, *index: Dim) -> Load:
    return Load(buffer, index, f32)


def product(a: Load, b: Load, store: Store, outer: Role = Role.MAP) -> tuple[Stmt, ...]:
    """for i in 3 { for j in 4 { acc = sum over k in 4 of a b; store } }"""
    fold = Fold(("acc",), "sum", (Axis("k", 4),), (a * b,))
    return (Loop("i", 3, (Loop("j", 4, (fold, store)),), outer),)


def kernel(body: tuple[Stmt, ...], *others: Param) -> Kernel:
    params = (Param("a", f32, (3, 4)), Param("b", f32, (4, 4)), *others)
    return Kernel((*params, Param("y", f32, (4, 4), Access.OUT)), body)


def test_independent_loops_around_a_sum_of_products_are_a_contraction() -> None:
    store = Store("y", (ROW, J), Name("acc", f32))
    site = find_site(kernel(product(load("a", ROW, K), load("b", K, J), store)))
    assert isinstance(site, Site)
    assert [axis.var for axis in (*site.rows, *site.cols, *site.depth)] == ["i", "j", "k"]


def test_a_recurrence_is_no_contraction() -> None:
    """y[i + 1] = y[i] b: each row needs the one before it."""
    store = Store("y", (ROW + 1, J), Name("acc", f32))
    body = product(load("y", ROW, K), load("b", K, J), store, Role.SEQ)
    first = (Loop("c", 4, (Store("y", (0, symbol("c")), load("a", 0, symbol("c"))),)),)
    assert isinstance(find_site(kernel(body)), No)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((3, 4), (4, 4)))
    found = evaluate_kernel(kernel((*first, *body)), {"a": a, "b": b}, {})["y"]
    want = np.stack([a[0] @ np.linalg.matrix_power(b, k) for k in range(4)])
    np.testing.assert_allclose(found, want, rtol=1e-4)


def test_a_sum_over_its_own_result_is_no_contraction() -> None:
    store = Store("y", (ROW, J), Name("acc", f32))
    site = find_site(kernel(product(load("a", ROW, K), load("y", K, J), store)))
    assert isinstance(site, No) and site.reason == "it reads what it writes"


def test_grid_loops_join_only_if_the_inner_extent_is_fixed() -> None:
    """Blocks of 16 of 36 channels: the last block has 4, so the count of tasks is no product."""
    inner = Loop(
        "j", minimum(16, 36 - ROW * 16), (Store("y", (ROW * 16 + J,), load("x", ROW * 16 + J)),)
    )
    nest = Loop("i", 3, (Loop("j", inner.extent, inner.body, Role.GRID),), Role.GRID)
    params = (Param("x", f32, (36,)), Param("y", f32, (36,), Access.OUT))
    text = render(KernelWriter(Kernel(params, (nest,)), HostPrinter(), {}).body((nest,)))
    assert text.count("parallel_for") == 2
    assert text.index("int64_t i = task") < text.index("min_index(16")


def test_dimension_names_meet_no_locals_and_no_other_names() -> None:
    names = ("width", "task", "int", "a.b_c", "a_b.c", "a_b_c", "größe", "1st")
    printed = [size_name(name) for name in names]
    assert len(set(printed)) == len(names)
    assert all(re.fullmatch(r"dim_[A-Za-z0-9_]+", word) for word in printed)
    assert identifier("i0") == "i0"
    loop = Loop("i", symbol("task"), (Store("y", (ROW,), load("x", ROW)),), Role.GRID)
    params = (Param("x", f32, (symbol("task"),)), Param("y", f32, (symbol("task"),), Access.OUT))
    text = render(KernelWriter(Kernel(params, (loop,)), HostPrinter(), {}).body((loop,)))
    assert "parallel_for(dim_task, [&](int64_t task)" in text
