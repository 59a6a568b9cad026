"""Who chooses among the ways of a kernel: the rules, the model beyond its error, measurements."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from unistack_aot.hw.machine import Machine, machine_for_arch
from unistack_aot.hw.occupancy import Occupancy
from unistack_aot.hw.roofline import Prediction, Term
from unistack_aot.schedule.candidates import (
    ANOTHER_ALGORITHM,
    MARGIN,
    block_ways,
    choose,
    neighbours,
    placed,
)
from unistack_aot.schedule.choices import Choice, Pick
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.panel_blocks import Extents, choose_blocks

CPU = machine_for_arch("x86-64-v3")
UNITS = replace(CPU.map.need("units.count"), mark="probe")
MEASURED = Machine(
    replace(CPU.map, properties=MappingProxyType({**CPU.map.properties, UNITS.name: UNITS}))
)
FAR = CPU.bandwidth("far")
PRODUCT = Extents(rows=512, cols=1024, depth=2048, batch=1, run=2048, taps=1, step=1)
WINDOW = Extents(rows=784, cols=128, depth=1152, batch=1, run=16, taps=9, step=1)


def taking(seconds: float) -> Prediction:
    return Prediction(
        seconds, (Term("dram", seconds, (FAR,)),), 1, Occupancy(1, "units.count", 1.0)
    )


def chosen(
    times: dict[str, float],
    picks: dict[str, Pick] | None = None,
    near: tuple[str, ...] | None = None,
    machine: Machine | None = None,
) -> tuple[int, Decision, Choice]:
    ways = {name: number for number, name in enumerate(times)}
    costs = {name: taking(seconds) for name, seconds in times.items()}
    near = tuple(ways) if near is None else near
    return choose(
        "blocks",
        "fc",
        ("y",),
        "key",
        ways,
        costs.__getitem__,
        machine or MEASURED,
        picks or {},
        near,
        "8 rows",
    )


def test_the_usual_way_stays_within_the_models_error() -> None:
    way, decision, choice = chosen({"usual": 1.0, "other": 1.0 - MARGIN + 0.01})
    assert way == 0 and choice.chosen == choice.usual == "usual"
    assert f"other: -{MARGIN - 0.01:.0%} predicted, within the model's error" in decision.because
    assert choice.ways[0][0] == "other"


def test_the_model_decides_beyond_its_error_and_the_losers_stay_in_the_record() -> None:
    way, decision, _ = chosen({"usual": 1.0, "fast": 0.5, "slow": 2.0})
    assert way == 1 and decision.chosen == "fast"
    assert "8 rows; 50% less than usual; " in decision.because
    assert f"map {CPU.id}: dram.bandwidth" in decision.because
    assert decision.tried == (
        "usual +100% (dram +5e+05 us)",
        "slow +300% (dram +1.5e+06 us)",
    )


def test_on_an_assumed_machine_the_usual_way_stays() -> None:
    way, decision, _ = chosen({"usual": 1.0, "fast": 0.5}, machine=CPU)
    assert way == 0
    assert "fast: -50% predicted, but the machine is assumed" in decision.because


def test_only_ways_near_the_usual_one_are_ranked() -> None:
    way, _, choice = chosen({"usual": 1.0, "near": 0.9, "far away": 0.1}, near=("near",))
    assert way == 0
    assert {name for name, _ in choice.ways} == {"usual", "near"}


def test_measurements_decide_whatever_the_model_says() -> None:
    pick = Pick("slow", {"slow": 0.2, "usual": 0.3})
    way, decision, _ = chosen({"usual": 1.0, "fast": 0.5, "slow": 2.0}, {"key": pick})
    assert way == 2
    assert "measured: the fastest of 2, 2e+05 us" in decision.because
    assert "usual -50%, measured 3e+05 us" in decision.tried


def test_a_measured_way_that_is_no_way_any_more_is_left() -> None:
    way, _, choice = chosen({"usual": 1.0, "other": 1.0}, {"key": Pick("gone", {"gone": 0.1})})
    assert way == 0 and choice.chosen == "usual"


def test_the_usual_blocks_come_first_and_neighbours_differ_in_one_thing() -> None:
    for extents in (PRODUCT, WINDOW):
        usual = choose_blocks(extents, CPU)
        ways = block_ways(extents, usual, CPU)
        assert next(iter(ways.values())) == usual
        near = neighbours(ways)
        assert 3 <= len(near) < len(ways)
        assert all(ways[name] != usual for name in near)


def test_ways_that_differ_in_one_thing_lie_on_one_axis_of_the_space() -> None:
    usual = choose_blocks(PRODUCT, CPU)
    for change in ({"row_block": 2 * usual.row_block}, {"panel_group": usual.panel_group // 2}):
        here, there = placed(usual, PRODUCT), placed(replace(usual, **change), PRODUCT)
        assert sum(abs(a - b) for a, b in zip(here, there, strict=True)) == 1
    assert placed(replace(usual, depth_block=PRODUCT.depth), PRODUCT) == placed(
        replace(usual, depth_block=0), PRODUCT
    )
    assert len(ANOTHER_ALGORITHM) == len(placed(usual, PRODUCT))


def test_depth_blocks_are_whole_windows() -> None:
    ways = block_ways(WINDOW, choose_blocks(WINDOW, CPU), CPU)
    assert all(b.depth_block % 144 == 0 for b in ways.values())


def other(machine: Machine, **values: float) -> Machine:
    entries = dict(machine.map.properties)
    for word, value in values.items():
        name = word.replace("_", ".")
        entries[name] = replace(entries[name], value=value)
    return Machine(replace(machine.map, properties=MappingProxyType(entries)))


def test_a_changed_map_changes_the_blocks() -> None:
    usual = choose_blocks(PRODUCT, CPU)
    small = choose_blocks(PRODUCT, other(CPU, l2_capacity=131072))
    assert small.row_block < usual.row_block
    wide = choose_blocks(PRODUCT, machine_for_arch("x86-64-v4"))
    assert wide.depth_block != usual.depth_block  # two panels of a wide tile share the first cache
