"""Property maps: the built-in ones are coherent, and a bad one is refused by name."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from unistack_aot.hw import propmap
from unistack_aot.hw.catalogue import (
    builtin_maps,
    default_ids,
    find_map,
    map_for_arch,
    map_for_device,
)
from unistack_aot.hw.consistency import contradictions
from unistack_aot.hw.propmap import BadPropertyMap, PropertyMap

MAPS = sorted(builtin_maps())


def document(name: str = "h100-sxm") -> Any:
    return copy.deepcopy(propmap.to_document(builtin_maps()[name]))


@pytest.mark.parametrize("name", MAPS)
def test_builtin_map_is_coherent(name: str) -> None:
    assert contradictions(builtin_maps()[name]) == ()


@pytest.mark.parametrize("name", MAPS)
def test_builtin_map_survives_a_round_trip(name: str, tmp_path) -> None:
    path = tmp_path / "map.json"
    propmap.save(builtin_maps()[name], path)
    assert propmap.load(path) == builtin_maps()[name]


def test_no_builtin_map_was_probed_here() -> None:
    marks = {entry.mark for found in builtin_maps().values() for entry in found.properties.values()}
    assert "probe" not in marks, "recorded measurements would make builds depend on one machine"


def test_every_generation_has_a_default() -> None:
    assert {found.arch for found in builtin_maps().values()} == set(default_ids())
    for arch, name in default_ids().items():
        assert builtin_maps()[name].arch == arch


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["properties"]["dram.bandwidth"].pop("value"), "'dram.bandwidth' has no value"),
        (
            lambda d: d["properties"]["dram.bandwidth"].update(value=3350),
            "'dram.bandwidth' is 3350",
        ),
        (lambda d: d["properties"]["clock"].update(value=-1), "'clock' is -1 Hz, outside"),
        (lambda d: d["properties"]["clock"].update(value=float("nan")), "'clock' is nan Hz"),
        (
            lambda d: d["properties"]["clock"].update(value="fast"),
            "'clock' is 'fast', not a number",
        ),
        (lambda d: d["properties"]["clock"].update(value=True), "'clock' is True, not a number"),
        (lambda d: d["properties"]["clock"].update(unit="MHz"), "'clock' has unit 'MHz'"),
        (lambda d: d["properties"]["clock"].update(mark="guessed"), "'clock' has mark 'guessed'"),
        (lambda d: d["properties"]["clock"].update(source="nowhere"), "'clock' cites 'nowhere'"),
        (lambda d: d["properties"].update(clock=5), "'clock' is not an object"),
        (lambda d: d.update(schema=99), "property map has schema 99, this version reads 1"),
        (lambda d: d.update(kind="fpga"), "kind is 'fpga'"),
        (lambda d: d.pop("sources"), "property map lacks the object 'sources'"),
        (lambda d: d.pop("arch"), "property map lacks the text 'arch'"),
    ],
)
def test_bad_map_is_refused_by_name(change, says: str) -> None:
    bad = document()
    change(bad)
    with pytest.raises(BadPropertyMap) as refusal:
        propmap.parse(bad, "bad.json")
    assert says in str(refusal.value)
    assert "bad.json" in str(refusal.value)


def test_file_faults_are_refused(tmp_path) -> None:
    with pytest.raises(BadPropertyMap, match="cannot read property map"):
        propmap.load(tmp_path / "absent.json")
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(BadPropertyMap, match="not JSON"):
        propmap.load(tmp_path / "text.json")


def altered(name: str, entry: str, factor: float) -> PropertyMap:
    changed = document(name)
    changed["properties"][entry]["value"] *= factor
    return propmap.parse(changed, name)


@pytest.mark.parametrize(
    ("name", "entry", "factor", "says"),
    [
        ("h100-sxm", "wgmma.bf16", 2.0, "'wgmma.bf16' is 1978 TFLOP/s"),
        ("a100-sxm-80", "mma.tf32", 0.5, "'mma.tf32' is 78"),
        ("h100-sxm", "l2.latency", 0.05, "'l2.latency'"),
        ("h100-sxm", "l2.capacity", 1e-3, "'l2.capacity'"),
        ("cpu-x86-64-v3", "dram.bandwidth", 50.0, "'l3.bandwidth'"),
        ("h100-sxm", "dram.bandwidth", 1.2, "'dram.bandwidth' exceeds 'dram.bandwidth.peak'"),
        ("h100-sxm", "shared.capacity.group", 2.0, "'shared.capacity.group' exceeds"),
    ],
)
def test_contradiction_is_found(name: str, entry: str, factor: float, says: str) -> None:
    found = contradictions(altered(name, entry, factor))
    assert any(says in line for line in found), found


def test_missing_entry_is_named_when_asked_for() -> None:
    with pytest.raises(BadPropertyMap, match=r"property map 'h100-sxm' has no 'l3\.latency'"):
        builtin_maps()["h100-sxm"].need("l3.latency")


def test_diff_names_what_changed() -> None:
    before, after = builtin_maps()["h100-sxm"], altered("h100-sxm", "launch", 1.5)
    (found,) = propmap.diff(before, after)
    assert (found.name, found.ratio) == ("launch", pytest.approx(1.5))
    assert propmap.diff(before, after, tolerance=0.6) == ()
    one_sided = propmap.diff(before, builtin_maps()["a100-sxm-80"], tolerance=10.0)
    assert {each.name for each in one_sided} >= {"wgmma.bf16", "fma.clock"}


def test_unknown_generation_takes_its_nearest_older_relative_and_says_so() -> None:
    assert map_for_arch("sm_90").exact
    choice = map_for_arch("sm_87")
    assert (choice.map.id, choice.exact) == ("rtx-3090", False)
    assert "no map for sm_87" in choice.because
    assert map_for_arch("sm_60").map.id == "v100-sxm2"
    assert map_for_arch("x86-64-v1").map.id == "cpu-x86-64-v2"
    with pytest.raises(BadPropertyMap, match="no property map for 'riscv'"):
        map_for_arch("riscv")


def test_device_name_picks_its_own_map() -> None:
    assert map_for_device("NVIDIA H200", "sm_90").map.id == "h200-sxm"
    assert map_for_device("NVIDIA H100 80GB HBM3", "sm_90").map.id == "h100-sxm"
    assert map_for_device("NVIDIA L4", "sm_89").map.id == "l4"
    assert map_for_device("Tesla T4", "sm_75").exact
    stranger = map_for_device("NVIDIA A10", "sm_86")
    assert not stranger.exact
    assert stranger.because.startswith("'NVIDIA A10' has no map of its own")


def test_map_is_found_by_id_or_path(tmp_path) -> None:
    assert find_map("b200").arch == "sm_100"
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(document("t4")))
    assert find_map(str(path)).id == "t4"
    with pytest.raises(BadPropertyMap, match="no built-in property map is called 'h1000'"):
        find_map("h1000")
