"""Independent iterations of ordered loops move outside, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from unistack_aot.aicf.types import TensorType, TupleType
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.nodes import Access, Kernel, Loop, Param, Role
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.transform import walk
from unistack_aot.ops.op import TensorOp
from unistack_aot.ops.recurrent import Gru, Lstm
from unistack_aot.ops.samples import parse_type
from unistack_aot.ops.scatter import ScatterElements, ScatterNd
from unistack_aot.schedule.few_wide import WideWorkers, assign_roles
from unistack_aot.schedule.independent import MOVE_OUTSIDE
from unistack_aot.schedule.operator import or_same
from unistack_aot.schedule.recurrences import step_weights
from unistack_aot.schedule.separation import SEPARATE

CASES: list[tuple[TensorOp, tuple[str, ...], int]] = [
    (Lstm(), ("f32[5, 3, 16]", "f32[16, 4]", "f32[3, 4]", "f32[3, 4]"), 3),
    (Gru(), ("f32[5, 3, 12]", "f32[12, 4]", "f32[3, 4]"), 3),
    (ScatterElements(0), ("f32[4, 6]", "i64[9, 6]", "f32[9, 6]"), 6),
    (ScatterNd(), ("f32[4, 6]", "i64[9, 1]", "f32[9, 6]"), 6),
    (ScatterElements(0), ("f32[4]", "i64[9]", "f32[9]"), 1),
]


def lowered(op: TensorOp, types: tuple[str, ...]) -> Kernel:
    """The naive kernel of an op."""
    kinds = tuple(parse_type(t) for t in types)
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(kinds))
    found = op.infer(*kinds)
    results = found.items if isinstance(found, TupleType) else (found,)
    assert all(isinstance(t, TensorType) for t in results)
    outs = tuple(Param(f"y{k}", t.dtype, t.shape, Access.OUT) for k, t in enumerate(results))  # type: ignore[union-attr]
    return op.lower(args, outs)


def stages(kernel: Kernel) -> tuple[Kernel, ...]:
    """Its nests, with what is independent outside."""
    nests = or_same(SEPARATE(kernel), (kernel,))
    return tuple(or_same(MOVE_OUTSIDE(nest), nest) for nest in nests)


def values(kernel: Kernel, arrays: dict[str, Any]) -> dict[str, Any]:
    """What the nests of a kernel compute, one after another."""
    memory = dict(arrays)
    for part in stages(kernel):
        params = tuple(
            replace(p, access=Access.INOUT) if p.access is Access.OUT and p.name in memory else p
            for p in part.params
        )
        part = replace(part, params=params)
        read = {p.name: memory[p.name] for p in part.params if p.access is not Access.OUT}
        memory |= evaluate_kernel(part, read, {})
    return {name: memory[name] for name in memory if name.startswith("y")}


@pytest.mark.parametrize(("op", "types", "outside"), CASES, ids=str)
def test_values_stay_and_iterations_spread(
    op: TensorOp, types: tuple[str, ...], outside: int
) -> None:
    kernel = lowered(op, types)
    last = stages(kernel)[-1]
    points = 1
    body = last.body
    while isinstance(body[0], Loop) and body[0].role is Role.MAP:
        assert isinstance(body[0].extent, int)
        points *= body[0].extent
        body = body[0].body
    assert points == outside
    rng = np.random.default_rng(3)
    arrays = {
        f"a{k}": rng.integers(0, 4, t.shape)  # type: ignore[arg-type]
        if t.dtype.name == "i64"
        else rng.standard_normal(prod(t.shape)).astype(np.float32).reshape(t.shape)  # type: ignore[arg-type]
        for k, t in enumerate(map(parse_type, types))
    }
    want = evaluate_kernel(kernel, arrays, {})
    for name, found in values(kernel, arrays).items():
        np.testing.assert_array_equal(found, want[name])


@pytest.mark.parametrize(
    ("access", "outside"),
    [
        ("h[t - 1, r, 7 - u]", "r"),
        ("h[t - 1, 3 - r, u]", "u"),
        ("h[t - 1, 3 - r, 7 - u]", "t"),
        ("h[t - 1, u % 4, r]", "t"),
    ],
)
def test_iterations_that_meet_stay_inside(access: str, outside: str) -> None:
    text = f"""kernel k(x: f32[4, 8] far) -> h: f32[9, 4, 8] far {{
      for t in 8 role=seq {{ for r in 4 {{ for u in 8 {{ h[t + 1, r, u] = add(x[r, u], {access}) }} }} }}
    }}"""
    kernel = parse_kernel(text)
    (loop,) = or_same(MOVE_OUTSIDE(kernel), kernel).body
    assert isinstance(loop, Loop)
    assert loop.var == outside
    assert (loop.role is Role.MAP) == (outside != "t")


@pytest.mark.parametrize(("op", "types"), [case[:2] for case in CASES[:2]])
def test_workers_that_share_steps_keep_values(op: TensorOp, types: tuple[str, ...]) -> None:
    """Loops over tasks lie inside the ordered loop, and nothing else changes; without sharing there are none."""
    kernel = lowered(op, types)
    shared = assign_roles(kernel, {}, WideWorkers(task=1, steps=True))
    (ordered,) = shared.body
    assert isinstance(ordered, Loop) and ordered.role is Role.SEQ
    tasks = [s for s in walk(ordered.body) if isinstance(s, Loop) and s.role is Role.GRID]
    assert len(tasks) == 2 * len(kernel.body[0].body), "the first step, and the others"  # type: ignore[union-attr]
    alone = assign_roles(kernel, {}, WideWorkers(task=1))
    assert not any(isinstance(s, Loop) and s.role is Role.GRID for s in walk(alone.body))
    random = np.random.default_rng(3)
    given = {
        p.name: random.standard_normal(p.shape).astype(np.float32)  # type: ignore[arg-type]
        for p in kernel.params
        if p.access is Access.IN
    }
    found, wanted = (evaluate_kernel(k, given, {}) for k in (shared, kernel))
    for name, want in wanted.items():
        np.testing.assert_array_equal(found[name], want)


@pytest.mark.parametrize(("units", "size"), [(256, 64), (96, 32), (48, 16), (20, None)])
def test_weights_of_every_step_lie_in_blocks_of_units(units: int, size: int | None) -> None:
    """All four gates begin at a block; the states, read along their last axis too, keep their layout."""
    state = f"f32[3, {units}]"
    kernel = lowered(
        Lstm(), (f"f32[5, 3, {4 * units}]", f"f32[{4 * units}, {units}]", state, state)
    )
    assert step_weights(kernel) == ({} if size is None else {"a1": Layout((0, size))})
