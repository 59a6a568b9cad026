"""Which way is measured next: the usual one, the best predicted, then what measurements point to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import log2

import pytest

from unistack_aot.tune.proposals import Space, expected_gains, improvement, next_way


def grid(predicted: Callable[[int, int], float], sizes: tuple[int, ...] = (1, 2, 4, 8)) -> Space:
    """Ways of two sizes."""
    pairs = list(product(sizes, sizes))
    return Space(
        named(1, 1),
        {named(a, b): predicted(a, b) for a, b in pairs},
        {named(a, b): (log2(a), log2(b)) for a, b in pairs},
    )


def named(a: int, b: int) -> str:
    return f"{a} by {b}"


def search(space: Space, real: Callable[[str], float], few: int) -> dict[str, float]:
    """What `few` trials measure."""
    tried: dict[str, float] = {}
    while len(tried) < few and (way := next_way(space, tried)) is not None:
        tried[way] = real(way)
    return tried


def test_the_usual_way_is_first_and_the_best_predicted_second() -> None:
    space = grid(lambda a, b: 1.0 + abs(log2(a / 4)) + abs(log2(b / 8)))
    tried = search(space, space.predicted.__getitem__, 2)
    assert list(tried) == [space.usual, named(4, 8)]


def test_every_way_is_measured_once_and_then_none_is_left() -> None:
    space = grid(lambda a, b: float(a + b))
    tried = search(space, space.predicted.__getitem__, 100)
    assert tried.keys() == space.predicted.keys()
    assert next_way(space, tried) is None


def test_a_disappointment_is_shared_by_its_neighbours() -> None:
    """Two valleys are predicted; the deeper one is measured to be no good, so the other is tried next."""
    best = {named(8, 8): 0.80, named(8, 4): 0.81, named(4, 8): 0.81, named(1, 8): 0.83}
    space = grid(lambda a, b: best.get(named(a, b), 1.0))
    tried = {space.usual: 1.0, named(8, 8): 1.1}
    assert next_way(space, tried) == named(1, 8)


def test_an_error_of_all_ways_changes_no_order() -> None:
    space = grid(lambda a, b: 1.0 + abs(log2(a / 4)) + abs(log2(b / 8)))
    slow = search(space, lambda way: 3 * space.predicted[way], 5)
    assert list(slow) == list(search(space, space.predicted.__getitem__, 5))


def test_a_tenth_of_the_trials_follows_what_the_model_does_not_know() -> None:
    """The model says that the first size matters little; in truth its optimum lies at the other end."""
    sizes = (1, 2, 4, 8, 16, 32, 64, 128)
    space = grid(lambda a, b: 1.0 + 0.01 * log2(a) + 0.05 * abs(log2(b / 8)), sizes)

    def real(way: str) -> float:
        a, b = (int(word) for word in way.split(" by "))
        return 1.0 + 0.06 * abs(log2(a / 64)) + 0.05 * abs(log2(b / 8))

    tried = search(space, real, len(space.predicted) // 10)
    assert min(tried.values()) <= 1.06  # at most one step from the best
    by_prediction = sorted(space.predicted, key=lambda way: (space.predicted[way], way))[:6]
    assert min(tried.values()) < min(real(way) for way in by_prediction)


def test_equal_times_give_equal_proposals() -> None:
    space = grid(lambda a, b: 1.0)
    tried = search(space, lambda way: 1.0, 10)
    assert len(tried) == 10 and list(tried) == list(search(space, lambda way: 1.0, 10))


def test_ways_without_a_place_are_left() -> None:
    space = Space("a", {"a": 1.0, "gone": 0.1, "b": 2.0}, {"a": (0.0,), "b": (1.0,)})
    assert next_way(space, {"a": 1.0}) == "b"


@pytest.mark.parametrize(
    "lead, width, gain", [(0.0, 1.0, 0.398942), (2.0, 1.0, 2.008491), (-2.0, 1.0, 0.008491)]
)
def test_expected_improvement(lead: float, width: float, gain: float) -> None:
    assert improvement(lead, width) == pytest.approx(gain, rel=1e-4)


def test_a_known_way_leaves_its_neighbours_less_uncertain_than_distant_ones() -> None:
    space = grid(lambda a, b: 1.0)
    near, far = expected_gains(space, [space.usual], {space.usual: 1.0}, [named(1, 2), named(8, 8)])
    assert near < far
