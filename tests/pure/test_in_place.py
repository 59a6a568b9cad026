"""Results in the memory of operands: which kernels may, what the verifier refuses, what a wrong alias computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unistack_aot.base.errors import IRError
from unistack_aot.base.verdict import No
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.nodes import Access, Kernel
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.program_parse import parse_program
from unistack_aot.mcir.run import run_program
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.touches import updates
from unistack_aot.mcir.verify import verify_kernel
from unistack_aot.mcir.verify_program import verify_program
from unistack_aot.schedule.in_place import UPDATE, updated
from unistack_aot.schedule.memory_reuse import reuse_memory
from unistack_aot.schedule.separation import SEPARATE

HEAD = "kernel k(x: f32[N, 8] far, w: f32[8, 8] far) -> y: f32[N, 8] far{} {{\n{}\n}}"
TILE = (
    "t: f32[4, 8] reg = 0\nt[m in 4*b ..+ min(4, N - 4*b), n in 0 ..+ 8] += contract({}, w[k, n])"
)
TILE += " over k in 8 via fma.panel16\n"

MAY = {
    "map": ("", "for i in N role=grid, j in 8 role=vector { y[i, j] = x[i, j] * 2.0 }"),
    "joint": ("", "for i in 8*N role=grid { y[i//8, i%8] = x[i//8, i%8] }"),
    "chunks": (
        "",
        (
            "for o in (8*N + 3)//4 role=grid, i in min(4, 8*N - 4*o) role=vector {"
            " y[(4*o + i)//8, (4*o + i)%8] = x[(4*o + i)//8, (4*o + i)%8] }"
        ),
    ),
    "row": (
        "",
        (
            "for i in N role=grid { s = fold sum over j in 8 role=vector of x[i, j]\n"
            "for j in 8 role=vector { y[i, j] = x[i, j] / s } }"
        ),
    ),
    "row of a group": (
        " group=32",
        (
            "for i in N role=grid { s = fold sum over j in 8 role=group of x[i, j]\n"
            "for j in 8 role=group { y[i, j] = x[i, j] / s } }"
        ),
    ),
    "after a product": (
        "",
        "for b in (N + 3)//4 role=grid { "
        + TILE.format("w[0, k]")
        + "drain t[m in 4*b ..+ min(4, N - 4*b), n in 0 ..+ 8] as v { y[m, n] = v + x[m, n] } }",
    ),
    "two parts": (
        "",
        (
            "for i in N role=grid, j in 4 role=seq { y[i, j] = x[i, j] }\n"
            "for i in N role=grid, j in 4 role=seq { y[i, j + 4] = x[i, j + 4] }"
        ),
    ),
}

MUST_NOT = {
    "turned": ("", "for i in N role=grid, j in 8 role=seq { y[i, 7 - j] = x[i, j] }", "of j may"),
    "rows of others": (
        "",
        "for i in N role=grid, j in 8 role=seq { y[i, j] = x[N - 1 - i, j] }",
        "iterations of i may read what others overwrite",
    ),
    "a row each time": (
        "",
        (
            "for i in N role=grid, j in 8 role=seq { s = fold sum over k in 8 role=seq of x[i, k]\n"
            "y[i, j] = s }"
        ),
        "iterations of j may read what others overwrite",
    ),
    "in order, but again": (
        "",
        "for i in N role=grid, t in 3 role=seq, j in 8 role=seq { y[i, j] = x[i, j] + f32([t]) }",
        "iterations of t may read",
    ),
    "after the store": (
        "",
        (
            "for i in N role=grid { for j in 8 role=seq { y[i, j] = 0.0 }\n"
            "s = fold sum over k in 8 role=seq of x[i, k]\nwhen s < 0.0 { y[i, 0] = s } }"
        ),
        "read after the store",
    ),
    "by data": (
        "",
        "for i in N role=grid, j in 8 role=seq { y[i, j] = x[i, at i64(w[0, j])] }",
        "iterations of j may read",
    ),
    "no barrier": (
        " group=32",
        (
            "for i in N role=grid { for j in 8 role=group { w2 = x[i, j]\n when w2 < 0.0 { sync } }\n"
            "for j in 8 role=group { y[i, 7 - j] = 1.0 } }"
        ),
        "workers do not wait",
    ),
    "operand of a product": (
        "",
        "for b in (N + 3)//4 role=grid { "
        + TILE.format("x[m, k]")
        + "drain t[m in 4*b ..+ min(4, N - 4*b), n in 0 ..+ 8] as v { y[m, n] = v } }",
        "a statement on tiles reads it",
    ),
}


def kernel_of(group: str, body: str) -> Kernel:
    return parse_kernel(HEAD.format(group, body))


@pytest.mark.parametrize("name", MAY)
def test_safe_kernels_overwrite_their_operand(name: str) -> None:
    kernel = kernel_of(*MAY[name])
    fresh = UPDATE(kernel, "x", "y", {})
    assert not isinstance(fresh, No), fresh
    verify_kernel(kernel, SCHEDULED)
    verify_kernel(fresh, SCHEDULED)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((9, 8)).astype(np.float32)
    w = rng.standard_normal((8, 8)).astype(np.float32)
    want = evaluate_kernel(kernel, {"x": x, "w": w}, {"N": 9})["y"]
    got = evaluate_kernel(fresh, {"y": x, "w": w}, {"N": 9})["y"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", MUST_NOT)
def test_unsafe_kernels_are_refused_with_a_reason(name: str) -> None:
    group, body, reason = MUST_NOT[name]
    kernel = kernel_of(group, body)
    found = UPDATE(kernel, "x", "y", {})
    assert isinstance(found, No)
    assert reason in str(found)


RACES = ("rows of others", "turned", "by data", "operand of a product")


@pytest.mark.parametrize("name", RACES)
def test_the_verifier_refuses_kernels_that_race(name: str) -> None:
    group, body, _ = MUST_NOT[name]
    wrong = updated(kernel_of(group, body.replace("role=seq", "role=vector")), "x", "y", {})
    with pytest.raises(IRError, match=r"may read elements of y that others overwrite|reads y"):
        verify_kernel(wrong, SCHEDULED)


@pytest.mark.parametrize("name", ["rows of others", "a row each time", "in order, but again"])
def test_a_wrong_alias_computes_wrong_values(name: str) -> None:
    group, body, _ = MUST_NOT[name]
    kernel = kernel_of(group, body)
    x = np.arange(72, dtype=np.float32).reshape(9, 8)
    w = np.zeros((8, 8), np.float32)
    want = evaluate_kernel(kernel, {"x": x, "w": w}, {"N": 9})["y"]
    got = evaluate_kernel(updated(kernel, "x", "y", {}), {"y": x, "w": w}, {"N": 9})["y"]
    assert not np.array_equal(got, want)


def test_other_types_and_layouts_are_refused() -> None:
    text = HEAD.format("", "for i in N role=grid, j in 8 role=seq { y[i, j] = x[i, j] }")
    for other in ("y: f16[N, 8] far", "y: f32[8, N] far", "y: f32[N, 8] far block(1, 8)"):
        kernel = parse_kernel(text.replace("y: f32[N, 8] far", other))
        assert str(UPDATE(kernel, "x", "y", {})) == "x and y differ in type or layout"
    kernel = parse_kernel(text)
    assert str(UPDATE(kernel, "y", "x", {})) == "x is not a result beside operand y"
    assert updates(kernel, "x", "y", {})


PROGRAM = """
program p {
  input x: f32[N, 8]
  arena a: f32[N, 8]
  arena b: f32[N, 8]
  arena flat: f32[8*N] alias b
  arena c: f32[N, 8]
  output y: f32[N, 8]
  k0(x) -> a
  k0(a) -> b
  k0(b) -> c
  k1(flat, c) -> y
}
kernel k0(x: f32[N, 8] far) -> y: f32[N, 8] far {
  for i in N role=grid, j in 8 role=vector { y[i, j] = x[i, j] * 2.0 }
}
kernel k1(x: f32[8*N] far, z: f32[N, 8] far) -> y: f32[N, 8] far {
  for i in N role=grid, j in 8 role=vector { y[i, j] = x[8*i + j] + z[i, j] }
}
"""


def test_dead_operands_give_their_memory() -> None:
    program = parse_program(PROGRAM)
    verify_program(program, SCHEDULED)
    done, decisions = reuse_memory(program, {})
    verify_program(done, SCHEDULED)
    owners = {b.name: b.alias_of for b in done.buffers}
    assert owners == {"x": None, "a": None, "b": "a", "flat": "a", "c": None, "y": None}
    assert [str(d) for d in decisions] == [
        (
            "in-place b: in the memory of a (nobody reads a again, and each element is read before it is "
            "overwritten: 32*N bytes less at once)"
        )
    ]
    x = np.arange(40, dtype=np.float32).reshape(5, 8)
    for each in (program, done):
        np.testing.assert_array_equal(run_program(each, {"x": x}, {}, {"N": 5})["y"], x * 12)


def test_reading_what_was_overwritten_is_refused() -> None:
    done, _ = reuse_memory(parse_program(PROGRAM), {})
    *first, third, last = done.steps
    assert isinstance(third, Launch)
    late = replace(third, args=("a", "c"))
    with pytest.raises(IRError, match="a is read after b took its memory"):
        verify_program(done.with_steps((*first, late, last)), SCHEDULED)


def test_a_second_nest_updates_what_the_first_one_wrote() -> None:
    nests = "for i in N { y[i, 0] = x[i, 1] }\nfor i in N { y[i, 1] = w[0, 0] }"
    first, second = SEPARATE.sure(kernel_of("", nests))
    assert [p.access for p in first.outputs] == [Access.OUT]
    assert [p.access for p in second.outputs] == [Access.INOUT]
