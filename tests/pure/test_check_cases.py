"""Sizes and inputs that a check tries: in declared ranges, integers that index what they may."""

from __future__ import annotations

import numpy as np
import pytest

from unistack_aot.aicf.parse import parse_graph
from unistack_aot.artifact.manifest import UNBOUNDED, Dim, Manifest, Tensor
from unistack_aot.base.errors import BadInput
from unistack_aot.check.cases import LARGEST_INPUTS, named, sizes_to_try
from unistack_aot.check.feeds import FEW, Values, drawn, ranges_of_inputs


def manifest(*dims: Dim, shape: tuple[str, ...] = ("n",)) -> Manifest:
    return Manifest("t", "m", (Tensor("x", "f32", shape),), (), (), dims)


def test_lowest_typical_highest() -> None:
    assert [s["n"] for s in sizes_to_try(manifest(Dim("n", 1, 64, 8)))] == [1, 8, 64]


def test_middle_where_the_typical_size_is_the_highest() -> None:
    assert [s["n"] for s in sizes_to_try(manifest(Dim("n", 1, 8, 8)))] == [1, 4, 8]


def test_dimensions_without_a_bound_take_small_odd_sizes() -> None:
    dims = (Dim("n", 1, UNBOUNDED, 1), Dim("m", 1, UNBOUNDED, 1))
    found = sizes_to_try(manifest(*dims))
    assert found == ({"n": 1, "m": 1}, {"n": 3, "m": 7})
    assert named(found[1]) == "n 3, m 7"


def test_very_large_inputs_are_left_out_unless_there_is_nothing_else() -> None:
    wide = ("n", str(LARGEST_INPUTS))
    assert [s["n"] for s in sizes_to_try(manifest(Dim("n", 1, 8, 8), shape=wide))] == [1]
    wider = ("n", str(LARGEST_INPUTS * 2))
    assert [s["n"] for s in sizes_to_try(manifest(Dim("n", 1, 8, 8), shape=wider))] == [1]


def test_asked_sizes_go_together() -> None:
    dims = (Dim("n", 1, 9, 9), Dim("m", 1, 9, 9))
    found = sizes_to_try(manifest(*dims), {"n": (2, 5), "m": 3})
    assert found == ({"n": 2, "m": 3}, {"n": 5, "m": 3})


def test_fixed_models_have_one_case() -> None:
    assert sizes_to_try(manifest(shape=("4",))) == ({},)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"q": 1}, "the package has no dimension 'q'\n  do: its dimensions are n"),
        ({"n": 9}, "dimension 'n' cannot be 9\n  do: the package was compiled for 1..8"),
    ],
)
def test_impossible_sizes_are_refused(asked: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        sizes_to_try(manifest(Dim("n", 1, 8, 8)), asked)
    assert str(caught.value) == words


EMBED = """\
graph g(%ids: i64[N], %mask: i64[N], %count: i64[N], %table: f32[30, 4]) {
  %0 = reshape(%ids) shape=[1, N] : i64[1, N]
  %1 = gather(%table, %0) axis=0 : f32[1, N, 4]
  return y=%1
}
"""


def test_an_index_stays_inside_its_table() -> None:
    graph = parse_graph(EMBED)
    found = ranges_of_inputs(graph)
    assert found == {
        "ids": Values(0, 30),
        "mask": Values(0, 2, mask=True),
        "count": Values(0, FEW),
    }


def test_inputs_are_seeded_and_of_the_declared_type() -> None:
    graph = parse_graph(EMBED)
    tensors = (
        Tensor("ids", "i64", ("N",)),
        Tensor("mask", "i64", ("N",)),
        Tensor("table", "f32", ("30", "4")),
    )
    first, again = (drawn(tensors, {"N": 200}, graph, 3) for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    assert first["ids"].dtype == np.int64 and first["ids"].max() < 30 and first["ids"].max() > 20
    assert set(first["mask"]) == {0, 1} and np.all(np.diff(first["mask"]) <= 0)
    assert first["table"].dtype == np.float32 and first["table"].shape == (30, 4)
    assert not np.array_equal(first["ids"], drawn(tensors, {"N": 200}, graph, 4)["ids"])


ONE_HOT = """\
graph g(%symbols: i32[N, 9], %flags: i32[N, 9]) {
  %0 = reshape(%symbols) shape=[N, 9, 1] : i32[N, 9, 1]
  %1 = constant [0, 1, 2, 3, 4, 5] : i32[6]
  %2 = equal(%0, %1) : bool[N, 9, 6]
  %3 = constant [1] : i32[1]
  %4 = equal(%flags, %3) : bool[N, 9]
  return a=%2, b=%4
}
"""


def test_numbers_that_are_looked_up_in_a_list_come_from_it() -> None:
    """One-hot as exporters write it: equal to each of a row of numbers, in its own column."""
    found = ranges_of_inputs(parse_graph(ONE_HOT))
    assert found == {"symbols": Values(0, 6), "flags": Values(0, FEW)}
