"""Ways of kernels on GPUs: what is offered, who chooses, and what a spill on trial leaves of the choice."""

from __future__ import annotations

from math import log2

import pytest

from unistack_aot.base.dtypes import f32
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.mcir.canonical import closed
from unistack_aot.mcir.nodes import Access, Kernel, Param
from unistack_aot.mcir.program import Buffer, Kind, Launch, Program
from unistack_aot.ops.contract import Contract
from unistack_aot.schedule.choices import Choice, Pick
from unistack_aot.schedule.offers import Offer, Way, take
from unistack_aot.targets.cuda.legalize import legalize
from unistack_aot.targets.target import Avoided, Scheduled
from unistack_aot.tune.proposals import Space, next_way

NODE = ("product",)
SHAPES = {"a": (256, 2048), "b": (2048, 256), "y": (256, 256)}


def product() -> Program:
    """A product whose depth may be split."""

    def param(name: str, access: Access = Access.IN) -> Param:
        return Param(name, f32, SHAPES[name], access)

    op = Contract("mk", "kn", "mn")
    kernel: Kernel = op.lower((param("a"), param("b")), (param("y", Access.OUT),))
    kinds = {"a": Kind.INPUT, "b": Kind.INPUT, "y": Kind.OUTPUT}
    buffers = tuple(Buffer(name, f32, shape, kinds[name]) for name, shape in SHAPES.items())
    return Program("p", buffers, (closed(kernel, Launch(kernel, (), origins=NODE)),))


def scheduled(pick: str = "", spilled: tuple[str, ...] = (), refused: str = "") -> Scheduled:
    """The product for sm_80, a way on trial and tiles that were found to spill."""
    (choice,) = legalize(product(), {}, {}, machine_for_arch("sm_80"), "f32").choices
    avoid = tuple(Avoided(NODE, way, f"32 bytes spilled with {way}") for way in spilled)
    no_good = {refused: "wrong"} if refused else {}
    picks = {choice.key: Pick(pick, {pick: 1e-6}, refused=no_good)} if pick else {}
    return legalize(product(), {}, {}, machine_for_arch("sm_80"), "f32", avoid, picks)


def the_choice(found: Scheduled) -> Choice:
    (choice,) = found.choices
    return choice


def held(way: str) -> int:
    """Sums per thread of a tile's way."""
    rows, _, cols = way.partition(" ")[0].rpartition(".")[2].partition("x")
    return int(rows) * int(cols)


def test_tiles_and_parts_are_ways_with_a_place_each() -> None:
    choice = the_choice(scheduled())
    ways = dict(choice.ways)
    assert len(ways) == len(set(choice.places.values())) == 11 * 5
    assert choice.chosen == choice.usual == min(ways, key=lambda way: (ways[way], way))
    assert choice.refused == {}


def test_every_launch_of_a_split_product_belongs_to_its_place() -> None:
    split = scheduled("fma.f32.64x64x16.4x4 in 4 parts")
    (names,) = the_choice(split).writes
    launches = list(split.program.launches())
    assert len(launches) == len(names) == 2
    assert [name for each in launches for name in each.writes()] == list(names)
    whole = scheduled("fma.f32.64x64x16.4x4")
    assert the_choice(whole).writes == (("y",),)


def test_a_pick_is_taken_and_the_record_says_why() -> None:
    found = scheduled("fma.f32.64x64x16.4x4", refused="fma.f32.64x64x16.8x4")
    choice = the_choice(found)
    assert choice.chosen == "fma.f32.64x64x16.4x4" != choice.usual
    (record,) = [each for each in found.decisions if each.kind == "tile"]
    assert record.because.startswith("measured: the fastest of 1, 1 us; ")
    assert record.tried[0].startswith("fma.f32.64x64x16.8x4 ")
    assert record.tried[0].endswith(", refused: wrong")


def test_a_pick_that_spills_is_refused_and_leaves_the_usual_way() -> None:
    usual = the_choice(scheduled()).usual
    light = "fma.f32.8x128x16.2x8"  # holds less than most: as a first choice it would leave few
    found = the_choice(scheduled(light, spilled=(light,)))
    assert found.refused == {light: f"32 bytes spilled with {light}"}
    assert found.chosen == found.usual == usual
    assert light not in dict(found.ways)


def test_a_usual_way_that_spills_after_the_pick_gives_way_to_lighter_ones() -> None:
    usual = the_choice(scheduled()).usual.partition(" ")[0]
    pick = next(w for w, _ in the_choice(scheduled()).ways if w.partition(" ")[0] != usual)
    found = the_choice(scheduled(pick, spilled=(pick.partition(" ")[0], usual)))
    assert list(found.refused) == [pick]
    assert all(held(way) < held(usual) for way, _ in found.ways)


def test_a_pick_that_is_no_way_any_more_leaves_the_usual_one() -> None:
    choice = the_choice(scheduled("fma.f32.1x1x1.1x1"))
    assert choice.chosen == choice.usual
    assert choice.refused == {}


def test_keys_tell_precisions_apart_but_not_picks() -> None:
    keys = {the_choice(scheduled(pick)).key for pick in ("", "fma.f32.64x64x16.4x4 in 4 parts")}
    other = legalize(product(), {}, {}, machine_for_arch("sm_80"), "tf32").choices
    assert len(keys) == 1
    assert the_choice(Scheduled(product(), {}, choices=other)).key not in keys


@pytest.mark.parametrize("liked", [(64, 64, 1), (128, 64, 4), (32, 64, 2)])
def test_a_tenth_of_the_ways_comes_close_to_the_best(liked: tuple[int, int, int]) -> None:
    """In truth a size is liked, of which the model knows nothing: each doubling away from it costs 5 %."""
    choice = the_choice(scheduled())
    places = dict(choice.places)

    def real(way: str) -> float:
        rows, cols, _, parts = places[way]
        away = zip((rows, cols, parts), map(log2, liked), strict=True)
        return dict(choice.ways)[way] * (1 + 0.05 * sum(abs(at - best) for at, best in away))

    space = Space(choice.usual, dict(choice.ways), places)
    tried: dict[str, float] = {}
    while len(tried) < len(places) // 9:  # six of 55
        way = next_way(space, tried)
        assert way is not None
        tried[way] = real(way)
    assert min(tried.values()) <= 1.05 * min(map(real, places))


def test_all_that_was_tried_is_shown() -> None:
    ways = [Way(f"w{k}", k * 1e-6, (float(k),), k, "predicted") for k in range(1, 10)]
    pick = Pick("w3", {f"w{k}": 1e-6 * k for k in range(2, 10)})
    made, decision, choice = take(Offer("tile", "y", "key", ways), pick)
    assert made == 3 and choice.usual == "w1" and choice.chosen == "w3"
    assert len(decision.tried) == 7
    assert decision.tried[0] == "w2 2.00 us, measured 2 us"
