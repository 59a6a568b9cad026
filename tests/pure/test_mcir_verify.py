"""The verifier of memory programs: each rule on a kernel or program that breaks it, and what the message shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unistack_aot.base.dtypes import f32
from unistack_aot.base.errors import IRError
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.program_parse import parse_program
from unistack_aot.mcir.stages.lowered import LOWERED
from unistack_aot.mcir.stages.prepared import PREPARED
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.verify import verify_kernel
from unistack_aot.mcir.verify_program import verify_program

HEAD = "kernel k(x: f32[N, 8] far, ids: i64[N] far) -> y: f32[N, 8] far {\n"
MAP = HEAD + "for i in N, j in 8 { y[i, j] = x[i, j] }\n}"


def check(body: str, stage: object = None) -> None:
    verify_kernel(parse_kernel(HEAD + body + "\n}"), stage)  # type: ignore[arg-type]


GOOD = {
    "map": "for i in N, j in 8 { y[i, j] = x[i, j] }",
    "joint": "for i in 8*N { y[i//8, i%8] = x[i//8, i%8] }",
    "split": "for o in (N + 3)//4, i in min(4, N - 4*o), j in 8 { y[4*o + i, j] = x[4*o + i, j] }",
    "steps": "for i in N, j in 8 step 4, k in 4 { y[i, j + k] = x[i, j + k] }",
    "turned": "for i in N, j in 8 { y[N - 1 - i, 7 - j] = x[i, j] }",
    "three parts": "for i in 8*N { y[i//8, 4*((i//4)%2) + i%4] = x[0, 0] }",
    "same row, in order": "for i in N { for j in 8 role=seq { y[i, 0] = x[i, j] } }",
    "combined": "for i in N { y[0, 0] += x[i, 0] }",
    "guarded": "for i in N, j in 8 { y[i, j] = where(j < 7, x[i, j + 1], 0.0) }",
    "marked": "for i in N { when ids[at ids[i]] == [i] { y[at ids[i], 0] = x[i, 0] } }",
    "marked by blocks": "for b in (N + 3)//4, i in min(4, N - 4*b) "
    "{ when [i + 4*b] == ids[at ids[4*b + i]] { y[at ids[4*b + i], 0] = 0.0 } }",
    "by data": "for i in N, j in 8 { y[i, j] = x[at ids[i], j] }",
    "tile": "for b in N role=grid { t: f32[8] near\nfor j in 8 { t[j] = x[b, j] }\n"
    "for j in 8 { y[b, j] = t[7 - j] } }",
    "drain": "for b in (N + 3)//4 role=grid { t: f32[4, 8] reg = 0\n"
    "drain t[m in 4*b ..+ min(4, N - 4*b), n in 0 ..+ 8] as v { y[m, n] = v } }",
    "nothing": "for i in N { s = fold max over k in 0 of x[i, k + 8]\ny[i, 0] = s }",
    "states": "for i in N, j in 8 { a, b = fold softmax over k in 8 of x[i, k]\ny[i, j] = a + b }",
}

BAD = {
    "unbound name": ("for i in N { y[i, 0] = t:f32 }", "t is not bound here"),
    "name after its block": ("for i in N { t = x[i, 0] }\ny[0, 0] = t:f32", "t is not bound here"),
    "bound twice": ("t = x[0, 0]\nt = x[0, 1]", "t is bound already"),
    "loop shadows loop": ("for i in N, i in 8 { y[i, 0] = 0.0 }", "i is bound already"),
    "unknown symbol": ("for i in N { y[i, 0] = x[j, 0] }", "j in j is no loop variable"),
    "extent of nothing": ("for i in M { y[i, 0] = 0.0 }", "M in M is no loop variable"),
    "arity": ("for i in N { y[i] = x[i, 0] }", "y has 2 axes, indexed with 1"),
    "dtype of a store": ("for i in N { y[i, 0] = ids[i] }", "y holds f32, stored i64"),
    "dtype of a load": ("for i in N { y[i, 0] = x[i, 0]:f32 + f32(x[i, 0]:f16) }", "x holds f32"),
    "dtype of an index": ("y[at i32(1), 0] = 0.0", "an index of y is i32, not i64"),
    "dtype of a name": ("t = x[0, 0]\nu = t:i64", "t is f32, used as i64"),
    "dtype of a condition": ("when x[0, 0] { sync }", "the condition is f32"),
    "store to an input": ("x[0, 0] = 0.0", "x is an input"),
    "no buffer": ("z[0] = 0.0", "z is no parameter or tile"),
    "past the end": ("for i in N { y[i, 0] = x[i + 1, 0] }", "index i + 1 leaves axis 0 of x"),
    "before the start": ("for i in N, j in 8 { y[i, j] = x[i, j - 1] }", "index j - 1 leaves"),
    "wholly outside": ("for i in N { y[i, 9] = 0.0 }", "index 9 leaves axis 1 of y"),
    "outside through a step": ("for i in N, j in 9 step 4 { y[i, j] = 0.0 }", "index j leaves"),
    "lost variable": ("for i in N, j in 8 { y[i, 0] = x[i, j] }", "iterations of j may store"),
    "sums collide": ("for i in 4, j in 4 { y[0, i + j] = 0.0 }", "may store to the same element"),
    "halves collide": ("for i in 8 { y[0, i//2] = 0.0 }", "iterations of i may store"),
    "overlapping steps": ("for i in 3, j in 3 { y[0, 2*i + j] = 0.0 }", "may store"),
    "data decides": ("for i in N { y[at ids[i], 0] = 0.0 }", "iterations of i may store"),
    "another mark": (
        "for i in N { when ids[at ids[i] + 1] == [i] { y[at ids[i], 0] = 0.0 } }",
        "may store",
    ),
    "a mark of two": (
        "for i in N { when ids[at ids[i]] == [i//2] { y[at ids[i], 0] = 0.0 } }",
        "may store",
    ),
    "not marked": (
        "for i in N { when ids[at ids[i]] == [i] { sync } else { y[at ids[i], 0] = 0.0 } }",
        "may store",
    ),
    "a mark under way": (
        "for i in N { when y[at ids[i], 0] == f32([i]) { y[at ids[i], 0] = 0.0 } }",
        "may store",
    ),
    "shared by units": ("t: f32[8] near\nfor i in N role=grid { t[0] = x[i, 0] }", "may store"),
    "fields": ("a = fold softmax over k in 8 of x[0, k]", "softmax has 2 fields, not 1"),
    "tile gone": ("for i in N { t: f32[1] reg }\nt[0] = 0.0", "t is no parameter or tile"),
    "tile of rank 1": ("t: f32[4] reg\ndrain t[m in 0 ..+ 1, n in 0 ..+ 1] as v {}", "not 2"),
    "near accumulator": (
        "t: f32[4, 8] near\nt[m in 0 ..+ 4, n in 0 ..+ 8] += contract(x[m, k], x[n, k]) over k in 8 via fma",
        "the accumulator t is not in registers",
    ),
    "operand of the other side": (
        "t: f32[4, 8] reg\nt[m in 0 ..+ 4, n in 0 ..+ 8] += contract(x[n, k], x[n, k]) over k in 8 via fma",
        "operand x depends on n",
    ),
    "rounded integers": (
        "t: f32[4, 8] reg\nt[m in 0 ..+ 4, n in 0 ..+ 8] += contract(bf16(ids[k]), x[n, k]) over k in 8 via dot",
        "ids of i64 is rounded to bf16",
    ),
    "filled registers": (
        "t: f32[4, 8] reg\nfill t[m in 0 ..+ 4, n in 0 ..+ 8] <- x[m, n]",
        "cannot fill t together",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_kernels_pass(name: str) -> None:
    check(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_each_rule_refuses(name: str) -> None:
    body, words = BAD[name]
    with pytest.raises(IRError) as fault:
        check(body)
    assert words in fault.value.what.splitlines()[0]
    assert fault.value.at == "kernel kernel"


def test_fault_shows_the_neighbourhood() -> None:
    body = (
        "for i in N { a = x[i, 0]\nb = x[i, 1]\nfor j in 8 role=vector { c = a + b\ny[i, 9] = c } }"
    )
    with pytest.raises(IRError) as fault:
        check(body)
    assert str(fault.value) == (
        "index 9 leaves axis 1 of y, which has 8 elements\n"
        "      for i in N {\n"
        "        for j in 8 role=vector {\n"
        "          c = a + b\n"
        "    >     y[i, 9] = c\n"
        "  at: kernel kernel"
    )


@pytest.mark.parametrize(
    ("stage", "body", "words"),
    [
        (SCHEDULED, "for i in N { y[i, 0] = 0.0 }", "a scheduled program has no role map"),
        (LOWERED, "for i in N role=grid { y[i, 0] = 0.0 }", "a lowered program has no role grid"),
        (LOWERED, "t: f32[1] reg", "a lowered program has no tile statements"),
        (PREPARED, "sync", "a prepared program has no sync statements"),
        (SCHEDULED, "sync", "sync in a kernel without a group"),
        (
            SCHEDULED,
            "for i in N role=lane { y[i, 0] = 0.0 }",
            "role lane in a kernel without a group",
        ),
    ],
)
def test_stages_have_their_own_rules(stage: object, body: str, words: str) -> None:
    with pytest.raises(IRError, match=words):
        check(body, stage)


def test_layouts_come_with_a_stage() -> None:
    text = "kernel k(x: f32[1, 8] far block(1, 8)) -> y: f32[1, 8] far { y[0, 0] = x[0, 7] }"
    verify_kernel(parse_kernel(text), PREPARED)
    with pytest.raises(IRError, match="x has a layout"):
        verify_kernel(parse_kernel(text), LOWERED)
    halo = "kernel k() -> y: f32[4] far halo(1) { for i in 6 { y[i - 1] = 0.0 } }"
    verify_kernel(parse_kernel(halo), PREPARED)
    with pytest.raises(IRError, match="index i - 2 leaves"):
        verify_kernel(parse_kernel(halo.replace("i - 1", "i - 2")))


PROGRAM = """
program p {
  input x: f32[N, 8]
  constant ids: i64[N] = "00"
  arena a: f32[N, 8]
  arena b: f32[8*N] alias a
  output y: f32[N, 8]
  k(x, ids) -> a
  k(a, ids) -> y
}
"""


def program(text: str) -> None:
    verify_program(parse_program(text + MAP), LOWERED)


def test_good_program_passes() -> None:
    program(PROGRAM)
    program(PROGRAM.replace("alias a", "alias a at 0").replace("8*N]", "4*N]"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  k(x, ids) -> a\n", "", "a is read before it is written"),
        ("k(a, ids) -> y", "k(x, ids) -> a", "a overwrites a"),
        ("k(a, ids) -> y", "copy a -> b", "a and b are not alike"),
        ("k(x, ids) -> a", "k(x, ids) -> x", "x belongs to x, which is given"),
        ("k(x, ids) -> a", "k(y, ids) -> x", "y is read before it is written"),
        ("k(a, ids) -> y", "k(a, ids) -> ids", "ids is i64"),
        ("arena a: f32[N, 8]", "arena a: f32[N, 9]", r"a is f32\[N, 9\], the kernel's y is"),
        ("arena a: f32[N, 8]", "arena a: f32[N, 8] block(1, 8)", "the kernel's y is"),
        ("alias a", "alias a at N", "alias b leaves its memory"),
        ("alias a", "alias c", "b is an alias of c"),
        ("  k(a, ids) -> y\n", "", "output y is never written"),
        ('= "00"', "", "ids is constant, its content: None"),
        ("arena a", "arena x", "two buffers have one name"),
    ],
)
def test_each_rule_of_programs_refuses(old: str, new: str, words: str) -> None:
    with pytest.raises(IRError, match=words):
        program(PROGRAM.replace(old, new, 1))


def test_launch_takes_its_buffers() -> None:
    good = parse_program(PROGRAM + MAP)
    short = good.map_launches(lambda launch: replace(launch, args=launch.args[:2]))
    with pytest.raises(IRError, match="the kernel takes 3 buffers, got 2"):
        verify_program(short)
    half = replace(good, buffers=tuple(b for b in good.buffers if b.name != "ids"))
    with pytest.raises(IRError, match="there is no buffer ids"):
        verify_program(half)


def test_reading_an_alias_of_the_result() -> None:
    text = PROGRAM.replace("k(a, ids) -> y", "k(a, ids) -> c").replace(
        "output y", "arena c: f32[N, 8] alias a\n  output y"
    )
    with pytest.raises(IRError, match="c shares memory with operand a"):
        program(text)


CONTROL = """
program p {
  input x: f32[N, 8]
  input ids: i64[N]
  input go: bool[]
  arena a: f32[N, 8]
  arena t: f32[N, 8]
  output y: f32[N, 8]
  if go {
    k(x, ids) -> a
  }
  else {
    copy x -> a
  }
  loop trips=[4] {
    carry a -> t, y2 -> y
    k(t, ids) -> y2
  }
  arena_end
}
""".replace("  arena_end\n", "").replace("  arena t", "  arena y2: f32[N, 8]\n  arena t")


def test_control_steps() -> None:
    program(CONTROL)
    with pytest.raises(IRError, match="a is read before it is written"):
        program(CONTROL.replace("    copy x -> a\n", ""))
    with pytest.raises(IRError, match="y2 is read before it is written"):
        program(CONTROL.replace("    k(t, ids) -> y2\n", ""))
    with pytest.raises(IRError, match="t is read before it is written"):
        program(
            CONTROL.replace("carry a -> t,", "carry a -> a2,").replace(
                "  arena t", "  arena a2: f32[N, 8]\n  arena t"
            )
        )


def test_dtypes_are_those_of_the_text() -> None:
    assert parse_kernel(MAP).params[0].dtype is f32
