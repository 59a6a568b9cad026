"""Every rule's own examples: it fires or holds as they say, and both sides are equal in numbers."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

import unistack_aot.ops  # noqa: F401  registers the vocabulary
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Array, Input
from unistack_aot.aicf.parse import parse_example
from unistack_aot.aicf.properties import PROPERTIES
from unistack_aot.aicf.verify import verify
from unistack_aot.base.symbolic import evaluate, symbols
from unistack_aot.ir.rewrite import Log
from unistack_aot.rules import all_rules, apply_phase

FIRES = [pytest.param(r, t, id=f"{r.name}-{k}") for r in all_rules() for k, t in enumerate(r.fires)]
HOLDS = [pytest.param(r, t, id=f"{r.name}-{k}") for r in all_rules() for k, t in enumerate(r.holds)]


def feeds_of(graph: Graph) -> dict[str, Array]:
    """Seeded values for every input; symbols take sizes of their own."""
    found: dict[str, Array] = {}
    names = sorted({n for node in graph.inputs for d in node.tensor.shape for n in symbols(d)})
    sizes = {name: 3 + k for k, name in enumerate(names)}
    for node in graph.inputs:
        assert isinstance(node.op, Input)
        rng = np.random.default_rng(zlib.crc32(node.op.label.encode()))
        shape = tuple(evaluate(d, sizes) for d in node.tensor.shape)
        dtype = node.tensor.dtype
        if dtype.is_float:
            found[node.op.label] = rng.standard_normal(shape).astype(dtype.numpy)
        else:
            high = 2 if dtype.is_bool else 5
            found[node.op.label] = rng.integers(0, high, shape).astype(dtype.numpy)
    return found


def assert_equal_graphs(before: Graph, after: Graph, feeds: dict[str, Array]) -> None:
    left, right = evaluate_graph(before, feeds), evaluate_graph(after, feeds)
    for name, value in left.items():
        assert right[name].dtype == value.dtype and right[name].shape == value.shape, name
        if value.dtype.kind != "f":
            np.testing.assert_array_equal(right[name], value, err_msg=name)
            continue
        narrow = value.dtype.itemsize < 4
        pair = (right[name].astype(np.float64), value.astype(np.float64))
        tolerance = 2e-3 if narrow else 1e-5
        np.testing.assert_allclose(*pair, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(("rule", "text"), FIRES)
def test_fires(rule, text: str) -> None:
    before, log = parse_example(text), Log()
    after = apply_phase(before, (rule,), log)
    assert log.fired[rule.name], log.refused
    assert after.results != before.results
    verify(after)
    assert_equal_graphs(before, after, feeds_of(before))


@pytest.mark.parametrize(("rule", "text"), HOLDS)
def test_holds(rule, text: str) -> None:
    before, log = parse_example(text), Log()
    after = apply_phase(before, (rule,), log)
    assert not log.fired and after.results == before.results


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_is_documented(rule) -> None:
    assert rule.fires and rule.holds, "a rule has examples of both kinds"
    assert set(rule.needs) <= PROPERTIES.keys()


def test_every_rule_is_listed() -> None:
    """The page of rules names each."""
    text = (Path(__file__).parents[2] / "docs" / "aicf.md").read_text()
    assert [r.name for r in all_rules() if r.name not in text] == []
