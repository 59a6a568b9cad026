"""ONNX's own backend tests: a sample compiled and run here; scripts/onnx_suite.py runs all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.node_cases import NodeCase, node_cases
from models.node_judged import NodeVerdict, importable, judged_cases, wrong


@pytest.fixture(scope="module")
def cases() -> list[NodeCase]:
    return node_cases()


def judged(cases: list[NodeCase], folder: Path, target: str) -> None:
    """None wrong, and most of those that are not refused right."""
    found = list(judged_cases(cases, folder, target))
    assert len(found) == len(cases)
    bad = [verdict.sentence for verdict in found if verdict.state in ("wrong", "failed")]
    assert not bad, "\n".join(bad)
    assert sum(verdict.state == "right" for verdict in found) > len(cases) / 3


@pytest.mark.slow
def test_every_case_imports_or_is_refused(cases: list[NodeCase]) -> None:
    found = [importable(case) for case in cases]
    failed = [v.sentence for v in found if isinstance(v, NodeVerdict) and v.state == "failed"]
    assert not failed, "\n".join(failed)
    assert sum(isinstance(each, NodeCase) for each in found) > 1400


@pytest.mark.slow
def test_a_sample_on_the_cpu(cases: list[NodeCase], tmp_path: Path) -> None:
    judged(cases[::20], tmp_path, "cpu:x86-64-v3")


@pytest.mark.slow
def test_a_sample_on_the_emulator(cases: list[NodeCase], tmp_path: Path) -> None:
    judged(cases[7::60], tmp_path, "emulator:sm_80")


def test_what_counts_as_wrong() -> None:
    (case,) = node_cases(["test_sum_two_inputs"])
    ((_, wants),) = case.runs
    (name, want), *_ = wants.items()
    assert wrong(case, {name: want}, wants) == ""
    off = want.copy()
    off[-1] *= 1.01
    assert wrong(case, {name: off}, wants).startswith(f"{name}: 1 of {want.size} elements differ")
    assert "not float32[3]" in wrong(case, {name: want.astype(np.float64)}, wants)


def test_operands_that_decide_extents_become_constants() -> None:
    (case,) = node_cases(["test_reshape_extended_dims"])
    fixed = case.fixed()
    assert fixed is not None and fixed.constants == ("shape",) and fixed.fixed() is None
    assert isinstance(importable(case), NodeCase)
    assert [value.name for value in fixed.model.graph.input] == ["data"]
