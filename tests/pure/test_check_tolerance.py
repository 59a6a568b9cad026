"""Tolerances: from element types and reduction lengths; errors in ulp-scaled units."""

from __future__ import annotations

from math import sqrt

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistack_aot.aicf.parse import parse_graph
from unistack_aot.check.compare import difference
from unistack_aot.check.oracles import Disturbance, disturbed, exact
from unistack_aot.check.tolerance import FORMULA, MARGIN, Rounding, bounds, eps, roundings

F32 = 2.0**-23


def graph_of(body: str, inputs: str, result: str) -> str:
    return f"graph g({inputs}) {{\n{body}\n  return {result}\n}}\n"


MATMUL = graph_of(
    '  %0 = contract(%x, %w) left="ac" out="ab" right="cb" : f32[3, 5]',
    "%x: f32[3, 100], %w: f32[100, 5]",
    "y=%0",
)


def test_a_fold_counts_its_terms() -> None:
    graph = parse_graph(MATMUL)
    (node,) = graph.results
    assert roundings(node) == 100
    assert bounds(graph, Rounding())["y"].relative == pytest.approx(MARGIN * F32 * sqrt(101))


def test_narrow_contractions_are_granted_their_operands_rounding() -> None:
    graph = parse_graph(MATMUL)
    got = bounds(graph, Rounding("bf16"))["y"].relative
    assert got == pytest.approx(MARGIN * sqrt(101 * F32**2 + 2 * eps("bf16") ** 2))


def test_variances_add_along_the_path() -> None:
    body = "  %0 = tanh(%x) : f32[7]\n  %1 = tanh(%0) : f32[7]"
    graph = parse_graph(graph_of(body, "%x: f32[7]", "y=%1"))
    assert bounds(graph, Rounding())["y"].ulps == pytest.approx(MARGIN * sqrt(2 * FORMULA))


def test_movement_is_exact_up_to_one_unit() -> None:
    body = "  %0 = transpose(%x) perm=[1, 0] : f32[5, 7]"
    graph = parse_graph(graph_of(body, "%x: f32[7, 5]", "y=%0"))
    assert bounds(graph, Rounding())["y"].ulps == 1


def test_integers_must_be_exact() -> None:
    body = "  %0 = arg_extreme(%x) axis=1 : i64[7, 1]"
    graph = parse_graph(graph_of(body, "%x: f32[7, 5]", "k=%0"))
    assert bounds(graph, Rounding())["k"].ulps == 0


def test_one_ulp_at_the_largest_element_is_one_unit() -> None:
    want = np.array([1.0, 0.0, 0.0], np.float32)
    got = want + np.array([F32, 0, 0], np.float32)
    assert difference(got, want).error == pytest.approx(1.0)
    assert difference(got, want).at == (0,)


def test_small_elements_are_measured_against_the_whole() -> None:
    want = np.array([1.0, 1e-9], np.float32)
    got = np.array([1.0, 2e-9], np.float32)
    assert difference(got, want).error < 0.02


def test_non_finite_values_must_agree() -> None:
    want = np.array([np.nan, np.inf, 1.0], np.float32)
    assert difference(want.copy(), want).error == 0
    assert difference(np.array([np.nan, 1.0, 1.0], np.float32), want).error == np.inf
    assert difference(np.array([0.0, np.inf, 1.0], np.float32), want).error == np.inf


def test_overflow_of_a_narrow_type_is_its_infinity() -> None:
    got = np.array([np.inf, 1.0], np.float16)
    assert difference(got, np.array([1e6, 1.0])).error == 0


def test_bfloat16_has_its_own_unit() -> None:
    want = np.ones(4)
    got = np.ones(4, ml_dtypes.bfloat16) + np.asarray(2**-7, ml_dtypes.bfloat16)
    assert difference(got, want).error == pytest.approx(1.0)


def test_integers_count_what_differs() -> None:
    got = np.array([1, 2, 3, 4])
    assert difference(got, np.array([1, 0, 3, 0])).error == 2


def test_shapes_must_agree() -> None:
    found = difference(np.zeros(3, np.float32), np.zeros(4, np.float32))
    assert (found.error, found.remark) == (np.inf, "shape [3] instead of [4]")


@given(st.integers(0, 10_000))
def test_float32_evaluation_is_within_tolerance(seed: int) -> None:
    """The formula grants what numpy's own f32 arithmetic does, with room, but not much more."""
    random = np.random.default_rng(seed)
    feeds = {
        "x": random.standard_normal((3, 100), dtype=np.float32),
        "w": random.standard_normal((100, 5), dtype=np.float32),
    }
    graph = parse_graph(MATMUL)
    truth = exact(graph, feeds)["y"]
    limit = bounds(graph, Rounding())["y"].ulps
    assert difference(feeds["x"] @ feeds["w"], truth).error < limit
    assert difference((truth * (1 + 2 * limit * F32)).astype(np.float32), truth).error > limit


def test_disturbance_measures_conditioning() -> None:
    """x - y of nearly equal numbers loses what rounding did to x: the measured error says so."""
    body = "  %0 = tanh(%x) : f32[64]\n  %1 = sub(%0, %y) : f32[64]"
    graph = parse_graph(graph_of(body, "%x: f32[64], %y: f32[64]", "d=%1"))
    x = np.linspace(0.5, 1, 64, dtype=np.float32)
    y = np.tanh(x) * np.float32(1 + 1e-5)
    feeds = {"x": x, "y": y}
    truth = exact(graph, feeds)["d"]
    run = disturbed(graph, feeds, Disturbance(Rounding(), 0))["d"]
    error = difference(run.astype(np.float32), truth).error
    assert error > 100 * bounds(graph, Rounding())["d"].ulps
