"""Traffic as `run --counters` tells it: table, JSON document, refusals; and what kernels of real models are held to."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import pytest

from models.catalogue import entry
from unistack_aot.emulator.counters import GlobalTraffic, SharedTraffic
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.requests import requests
from unistack_aot.pipeline import compile_model
from unistack_aot.stages import Hooks
from unistack_aot.targets.target import Scheduled, Source

ROOT = Path(__file__).parents[2]
LANES = machine_for_arch("sm_80").lanes
T = TypeVar("T")
pytestmark = pytest.mark.skipif(
    find_spec("pycuda") is None, reason="pycuda is not installed (scripts/setup.sh builds it)"
)


def compiled(
    folder: Path, model: str, precision: str = "f32", checked: bool = True
) -> tuple[Path, Source, Program]:
    """The package of a catalogue model, its generated source, and the program that this prints."""
    seen: list[Source] = []
    decided: list[Program] = []

    def watch(_: str, value: T, /) -> T:
        if isinstance(value, Source):
            seen.append(value)
        if isinstance(value, Scheduled):
            decided.append(value.program)
        return value

    path = folder / "m.pkg"
    target = "emulator:sm_80" + ("-checked" if checked else "")
    compile_model(
        entry(model).load(), path, (target,), precision=precision, hooks=Hooks(watch=watch)
    )
    return path, seen[-1], decided[-1]


def ran(path: Path, *more: str, device: str = "emulator") -> subprocess.CompletedProcess[str]:
    """`run --counters` in a process of its own, which then has the emulator's driver."""
    command = [sys.executable, "-m", "unistack_aot", "run", str(path), "--counters", "--device"]
    return subprocess.run(
        [*command, device, *more], cwd=ROOT, capture_output=True, text=True, check=False
    )


MODELS = (
    ("resnet_small", "f32"),
    ("vit_small", "f32"),
    ("mobilenet_v3_small", "f32"),
    ("bert_small", "bf16"),
)


@pytest.mark.parametrize(("model", "precision"), MODELS)
def test_kernels_of_real_models(tmp_path: Path, model: str, precision: str) -> None:
    path, source, program = compiled(tmp_path, model, precision)
    done = ran(path, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    for launch, seen in zip(program.launches(), facts["launches"], strict=True):
        asked = requests(launch.kernel, {}, LANES)
        read = seen["load"]["bytes"] + seen["copy_async"]["bytes"]
        assert (read, seen["store"]["bytes"]) == (asked.read, asked.written), seen["kernel"]
    kernels = {kernel.symbol: kernel for kernel in source.kernels}
    counted = {each["kernel"]: each for each in facts["counters"]}
    assert counted.keys() == kernels.keys()
    assert sum(each["launches"] for each in facts["counters"]) == len(facts["launches"])
    for symbol, each in counted.items():
        read, written = GlobalTraffic(**each["read"]), GlobalTraffic(**each["written"])
        assert SharedTraffic(**each["shared"]).conflicts == 0, symbol
        way = source.ways[symbol].startswith(("fma.", "mma.", "attention."))
        assert (each["mma"] > 0) == (precision == "bf16" and way), symbol
        if way:
            assert each["shared"]["wavefronts"] > 0
            # Whole sectors leave, of 16-bit results too; a row of bert_small's heads is half a sector.
            halves = precision == "bf16" and source.ways[symbol].startswith("attention.")
            assert written.efficiency == (0.5 if halves else 1), symbol
        last = kernels[symbol].origins[-1]
        if not way and last.endswith(("/LayerNormalization", "/gate/Mul")):
            assert read.efficiency >= written.efficiency * 0.9, symbol
            assert read.efficiency >= 1, symbol


def test_a_table_for_people(tmp_path: Path) -> None:
    path, source, _ = compiled(tmp_path, "vit_small")
    lines = ran(path).stdout.splitlines()
    start = next(n for n, line in enumerate(lines) if line.split()[:2] == ["kernel", "runs"])
    rows = [line.split() for line in lines[start + 1 :]]
    assert [row[0] for row in rows] == list(dict.fromkeys(row[0] for row in rows))
    assert {row[0] for row in rows} == {kernel.symbol for kernel in source.kernels}
    assert all(row[-1].startswith("/") for row in rows)


def test_refusals(tmp_path: Path) -> None:
    path, *_ = compiled(tmp_path, "vit_small", checked=False)
    done = ran(path)
    assert done.returncode == 2
    assert "the image of emulator:sm_80 does not count" in done.stderr
    assert "compile with --target emulator:sm_80-checked" in done.stderr
    done = ran(path, device="cpu")
    assert done.returncode == 2
    assert "--counters on device 'cpu'" in done.stderr


def test_sums_and_shares() -> None:
    broadcast = GlobalTraffic(requests=1, sectors=1, bytes=128) + GlobalTraffic(1, 3, 0)
    assert (broadcast.sectors_per_request, broadcast.efficiency) == (2, 1)
    assert (SharedTraffic(1, 4, 2, 8) + SharedTraffic(1, 1, 1, 8)).conflicts == 2
