"""Tuning of GPU targets: the whole path on the emulator with a clock of its own, and where it is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.build.tuned_emulator import LIKED, product
from unistack_aot.base.errors import UnistackError
from unistack_aot.check.compile import Tuning, compile_model
from unistack_aot.cli.main import main
from unistack_aot.runtime import devices
from unistack_aot.tune.search import FEW

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys, tests.build.tuned_emulator as t; t.main(t.Path(sys.argv[1]))"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("pycuda", reason="the CUDA runtime needs pycuda")
    folder = tmp_path_factory.mktemp("tuned")
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name, kernels", [("product", 2), ("attention", 1)])
def test_a_search_stops_resumes_and_stores_what_the_clock_says(
    found: dict[str, Any], name: str, kernels: int
) -> None:
    said, entries = found[name]["first"]
    assert f"{kernels} kernels not searched to the end" in said
    assert [len(entry["measured"]) for entry in entries] == [1] * kernels
    said, entries = found[name]["second"]
    assert "not searched" not in said
    assert f"{kernels} kernels differ from the usual way" in said
    for entry in entries:
        assert len(entry["measured"]) == FEW and entry["usual"] in entry["measured"]
        assert entry["measured"].keys() <= entry["predicted"].keys()
        assert entry["refused"] == {}


def test_the_time_of_a_split_product_is_that_of_both_its_launches(found: dict[str, Any]) -> None:
    for entry in found["product"]["second"][1]:
        whole = entry["measured"][f"{LIKED} in 2 parts"]
        assert whole > 2e-6 + 2e-6  # the tile's launch takes 2 us, none takes less


@pytest.mark.parametrize("name", ["product", "attention"])
def test_the_same_database_gives_the_same_bytes_and_results(
    found: dict[str, Any], name: str
) -> None:
    assert len(set(found[name]["bytes"])) == 1
    assert found[name]["apart"] < 1e-5


@pytest.mark.parametrize("name", ["product", "attention"])
def test_the_fastest_way_is_taken_and_the_record_shows_what_was_measured(
    found: dict[str, Any], name: str
) -> None:
    fastest = [min(entry["measured"].values()) for entry in found[name]["second"][1]]
    records = found[name]["records"]
    assert len(records) == len(fastest)
    for record in records:
        assert record["kernel"]
        assert record["because"].startswith(f"measured: the fastest of {FEW}, ")
        assert sum(", measured " in tried for tried in record["tried"]) == FEW - 1
    if name == "product":
        assert [record["chosen"] for record in records] == [f"{LIKED} in 2 parts"] * 2


@pytest.mark.parametrize(
    "case, because", [("wrong", "output 'y' is "), ("spilled", f"32 bytes spilled with {LIKED}")]
)
def test_the_fastest_way_is_refused_for_good_where_it_is_no_good(
    found: dict[str, Any], case: str, because: str
) -> None:
    best = f"{LIKED} in 2 parts"
    assert ", 2 ways refused" in found[case]["tuned"]
    for entry in found[case]["entries"]:
        assert list(entry["refused"]) == [best]
        assert entry["refused"][best].startswith(because)
        assert len(entry["measured"]) == FEW - 1 and best not in entry["measured"]
    for record in found[case]["records"]:
        assert not record["chosen"].startswith(LIKED)
        assert f"measured: the fastest of {FEW - 1}" in record["because"]
        assert any(f"{best} " in t and f", refused: {because}" in t for t in record["tried"])
    assert found[case]["apart"] < 1e-5


def test_a_database_with_refused_ways_gives_the_same_bytes(found: dict[str, Any]) -> None:
    assert len(set(found["spilled"]["bytes"])) == 1


def refusal(targets: tuple[str, ...], folder: Path) -> UnistackError:
    tuning = Tuning(5, folder / "db")
    with pytest.raises(UnistackError) as refused:
        compile_model(product(), folder / "p.pkg", targets, golden=False, tuning=tuning)
    assert not (folder / "p.pkg").exists()
    return refused.value


def test_without_a_gpu_its_targets_are_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "gpu_present", lambda: False)
    onnx.save(product(), tmp_path / "p.onnx")
    words = [str(tmp_path / "p.onnx"), "-o", str(tmp_path / "p.pkg"), "--target", "cuda:sm_90"]
    assert main([*words, "--tune", "5"]) == 2
    assert capsys.readouterr().err == (
        "error: there is no GPU here to measure on\n"
        "  at: cuda:sm_90\n"
        "  do: measure where such a GPU is and bring the folder of times here (--tune 0 --tuning DIR), "
        "or leave this target out\n"
        "nothing was written\n"
    )
    assert not (tmp_path / "p.pkg").exists()


def test_what_can_be_measured_is_tuned_and_the_rest_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "gpu_present", lambda: False)
    told: list[str] = []
    tuning = Tuning(1, tmp_path / "db", told.append)
    targets = ("cpu:x86-64-v3", "emulator:sm_90")
    report = compile_model(product(), tmp_path / "p.pkg", targets, golden=False, tuning=tuning)
    assert any(line.startswith("emulator:sm_90 is not tuned: ") for line in told)
    assert len(report.variants) == len(targets)
    assert list((tmp_path / "db").iterdir())


def test_a_gpu_of_another_generation_measures_nothing_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Two:
        @staticmethod
        def generations() -> tuple[int, ...]:
            return (86, 80)

    monkeypatch.setattr(devices, "gpu_present", lambda: True)
    monkeypatch.setattr(devices, "driver_is_emulated", lambda: False)
    monkeypatch.setattr(devices, "_backend", lambda: Two)
    refused = refusal(("cuda:sm_90",), tmp_path)
    assert refused.what == "no GPU here is sm_90: GPU 0 is sm_86, GPU 1 is sm_80"
    assert devices.measured_on("cuda:sm_80") == "cuda:1"
    assert devices.measured_on("cpu:x86-64-v3") == "cpu"


def test_times_of_an_emulator_are_never_taken_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(("emulator:sm_90",), tmp_path).what == "an emulator has no speed to tune for"
    monkeypatch.setattr(devices, "driver_is_emulated", lambda: True)
    assert "this process holds the emulator's" in refusal(("cuda:sm_90",), tmp_path).what
