"""The verb `probe`: comparing maps, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from probe_suite import mapping
from unistack_aot.cli.main import main
from unistack_aot.hw.catalogue import builtin_maps
from unistack_aot.hw.propmap import to_document

Change = Callable[[dict[str, dict[str, object]]], None]


def written(folder: Path, name: str, change: Change = lambda _: None) -> str:
    """A built-in map as a file, its properties changed."""
    document = json.loads(json.dumps(to_document(builtin_maps()["cpu-x86-64-v3"])))
    document["id"] = name
    change(document["properties"])
    file = folder / f"{name}.json"
    file.write_text(json.dumps(document))
    return str(file)


def said(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> list[str]:
    assert main(["probe", *words]) == code
    out, err = capsys.readouterr()
    return (out or err).splitlines()


def test_diff_shows_ratios_and_what_is_only_in_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(entries: dict[str, dict[str, object]]) -> None:
        entries["l2.capacity"]["value"] = 131072
        entries["page.miss"] = {**entries["l2.latency"], "value": 2e-8}
        del entries["fma.f64"]

    a, b = written(tmp_path, "a"), written(tmp_path, "b", change)
    before = builtin_maps()["cpu-x86-64-v3"].need("l2.capacity").value
    lines = said(capsys, 0, "diff", a, b)
    rows = {line.split()[0]: " ".join(line.split()) for line in lines[2:-1]}
    assert rows["l2.capacity"].endswith(f"128 KiB {131072 / before:.2f} x")
    assert rows["page.miss"] == "page.miss - 20 ns only in the second"
    assert rows["fma.f64"].endswith("- only in the first")
    assert len(rows) == 3
    assert lines[-1].startswith("3 properties differ, ")


def test_diff_takes_built_in_maps_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "diff", "a100-sxm-80", "h100-sxm", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = {each["property"]: each for each in facts["differences"]}
    assert found["dram.bandwidth"]["ratio"] > 1.5


@pytest.mark.parametrize(
    "words, what",
    [
        (("difff",), "error: 'difff' can not be understood"),
        (("diff", "a100-sxm-80"), "error: 'diff a100-sxm-80' can not be understood"),
        (("diff", "none", "h100-sxm"), "error: no built-in property map is called 'none'"),
        (("diff", "no.json", "h100-sxm"), "error: cannot read property map: No such file or "),
        (("-o", "map.txt"), "error: the map 'map.txt' does not end in .json"),
        (("--device", "tpu"), "error: no device is called 'tpu'"),
        (("--only", "gpu_mma"), "error: no cpu probe is called gpu_mma"),
    ],
)
def test_refused(words: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, 2, *words)
    assert lines[0].startswith(what)


@pytest.mark.parametrize(
    "change, what",
    [
        ({"value": 5e15}, "error: 'clock' is 5e+15 Hz, outside "),
        ({"value": "fast"}, "error: 'clock' is 'fast', not a number"),
        ({"unit": "GHz"}, "error: 'clock' has unit 'GHz', expected one of "),
        ({"source": "hearsay"}, "error: 'clock' cites 'hearsay', which is not among the sources"),
    ],
)
def test_absurd_values_are_named(
    change: dict[str, object], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = written(tmp_path, "bad", lambda entries: entries["clock"].update(change))
    lines = said(capsys, 2, "diff", bad, "h100-sxm")
    assert lines[0].startswith(what)
    assert lines[1] == f"  at: {bad}"


def test_no_gpu_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pycuda", reason="without pycuda the words are others")
    try:
        code = main(["probe", "--device", "cuda:7", "-o", "never.json"])
    finally:
        assert not Path("never.json").exists()
    assert code == 2
    assert "error: " in capsys.readouterr().err


def test_an_unknown_gpu_takes_the_nearest_map_and_says_so() -> None:
    choice = mapping.base_map("NVIDIA H20-3e", "sm_90")
    assert choice.map.id == "h100-sxm"
    assert choice.because == "'NVIDIA H20-3e' has no map of its own; default map of sm_90"
    newer = mapping.base_map("NVIDIA X900", "sm_103")
    assert newer.map.arch == "sm_100"
    assert "no map for sm_103; using" in newer.because
    assert mapping.base_map("NVIDIA H200", "sm_90").map.id == "h200-sxm"
