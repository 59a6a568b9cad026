"""Extents that depend on loop variables, as counts take them."""

from __future__ import annotations

import pytest

from unistack_aot.base.symbolic import evaluate, parse, symbols
from unistack_aot.mcir.counts import whole


@pytest.mark.parametrize(
    ("extent", "least", "dims"),
    [
        ("min(4, N - 4*i)", 4, {"N": 9}),
        ("min(64, 128 - 64*i)", 64, {}),
        ("max(0, min(3, (H + 1)//2 + 1 - 2*i) - max(0, 1 - 2*i))", 3, {"H": 8}),
        ("(N - i)//2", 4, {"N": 9}),
        ("min(i + 1, 8)", 8, {}),
        ("i + 1", 1, {}),
    ],
)
def test_an_extent_by_loop_variables_counts_as_its_greatest(
    extent: str, least: int, dims: dict[str, int]
) -> None:
    found = whole(parse(extent), frozenset({"i"}))
    assert "i" not in symbols(found)
    assert evaluate(found, dims) == least
