"""What a kernel moves: extents that depend on loop variables, operands that are held otherwise than they are meant."""

from __future__ import annotations

import pytest

from unistack_aot.base.symbolic import evaluate, parse, symbols
from unistack_aot.mcir.counts import traffic, whole
from unistack_aot.mcir.parse import parse_kernel


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


def test_transformed_weights_are_more_than_the_taps_they_stand_for() -> None:
    kernel = parse_kernel("""
    kernel convolve(x: f32[1, 256, 16, 16] far, w: f32[16, 16, 256, 16] far) -> y: f32[1, 256, 14, 14] far {
      tile: f32[196, 256] reg = 0.0
      tile[p in 0 ..+ 196, f in 0 ..+ 256] += contract(
        x[0, c, r + p//14, s + p%14], w[3*r + s, f//16, c, f%16]
      ) over c in 256, r in 3, s in 3 via winograd.f2x2.panel16 blocks(14, 14, 0)
      drain tile[p in 0 ..+ 196, f in 0 ..+ 256] as v { y[0, f, p//14, p%14] = v }
    }
    """)
    assert (
        traffic(kernel)["w", False] == 16 * 256 * 256 * 4
    )  # 4 x 4 products of a tile, not 3 x 3 taps
