"""Every rule's examples on NaN, infinities and both zeros: the same classes of values on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.test_examples import FIRES, feeds_of
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Array
from unistack_aot.aicf.parse import parse_example
from unistack_aot.ir.rewrite import Log
from unistack_aot.ops.attention import Attention
from unistack_aot.rules import apply_phase

FINITE = (0.0, -0.0, np.nan, 1.5, -2.0)
SPECIAL = (*FINITE, np.inf, -np.inf)


def special_feeds(
    feeds: dict[str, Array], seed: int, values: tuple[float, ...] = SPECIAL
) -> dict[str, Array]:
    """Floats replaced by special ones: all of them for even seeds, else one in five."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, value in feeds.items():
        if value.dtype.kind in "biu":
            found[name] = value
            continue
        drawn = rng.choice(values, value.shape).astype(value.dtype)
        some = rng.random(value.shape) < (1.0 if seed % 2 == 0 else 0.2)
        found[name] = np.where(some, drawn, value)
    return found


def kinds(value: Array) -> Array:
    """Per element: NaN, an infinity, a zero (each with its sign), or another number."""
    wide = np.asarray(value, np.float64)
    signed = np.where(np.signbit(wide), -1, 1)
    kind = np.where(np.isinf(wide), 3, np.where(wide == 0, 1, 2)) * signed
    return np.where(np.isnan(wide), 9, np.where(abs(kind) == 2, 2, kind))


def causal(after: Graph) -> bool:
    """Whether keys are never looked at, so that NaN there is hidden; docs/aicf.md states it."""
    return any(isinstance(node.op, Attention) and node.op.causal for node in after.nodes())


@pytest.mark.parametrize(("rule", "text"), FIRES)
def test_special_values(rule, text: str) -> None:
    before = parse_example(text)
    after = apply_phase(before, (rule,), Log())
    if causal(after):
        pytest.skip("the causal form does not look at later keys at all")
    # the order of sums decides whether infinities meet; docs/aicf.md states it
    values = FINITE if "reassociated" in rule.needs else SPECIAL
    for seed in range(20):
        feeds = special_feeds(feeds_of(before), seed, values)
        left, right = evaluate_graph(before, feeds), evaluate_graph(after, feeds)
        for name, value in left.items():
            if value.dtype.kind == "f":
                np.testing.assert_array_equal(
                    kinds(right[name]), kinds(value), err_msg=f"{seed}, {name}"
                )
