"""Verification levels: what a pass breaks is found after that pass from level 2 on, and its name is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unistack_aot.base.errors import IRError
from unistack_aot.base.options import Options
from unistack_aot.ir.passes import Pass, sequence
from unistack_aot.mcir.program_parse import parse_program
from unistack_aot.schedule import prepare
from unistack_aot.schedule.prepare import Work

TEXT = """
program p {
  input x: f32[N, 8]
  output y: f32[N, 8]
  k(x) -> y
}
kernel k(x: f32[N, 8] far) -> y: f32[N, 8] far { for i in N, j in 8 { y[i, j] = x[i, j] } }
"""


def forgetful(work: Work) -> Work:
    return replace(work, program=work.program.with_steps(()))


def test_a_pass_that_breaks_the_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse_program(TEXT)
    prepare.prepare(program, {}, {}, level=2)
    broken = (*prepare.SHARED.passes, Pass("forgets", forgetful))
    monkeypatch.setattr(prepare, "SHARED", sequence(broken, ("lowered",)))
    prepare.prepare(program, {}, {}, level=1)
    with pytest.raises(IRError, match="after pass forgets: output y is never written"):
        prepare.prepare(program, {}, {}, level=2)


def test_tests_verify_after_each_pass() -> None:
    assert Options().verify == 2
