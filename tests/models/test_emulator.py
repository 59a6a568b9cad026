"""Catalogue models through the CUDA target on the emulator: right outputs, whatever order threads run in."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from models.catalogue import SMALL

ROOT = Path(__file__).parents[2]
# One of each kind: convolutions, depthwise ones, encoders, decoders with a cache, recurrences,
# host loops, symbolic sizes.
QUICK = (
    "resnet_small",
    "mobilenet_v3_small",
    "bert_small_dynamic",
    "llama_small",
    "lstm_small",
    "generator_small_scan",
)

pytestmark = pytest.mark.skipif(
    find_spec("pycuda") is None, reason="pycuda is not installed (scripts/setup.sh builds it)"
)


def outcome(model: str, target: str, precision: str = "f32") -> dict[str, object]:
    """What a fresh process found out about a model."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.models.emulated_models", target, precision, model],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ran.stdout.strip().splitlines()
    assert lines, ran.stderr[-4000:]
    return json.loads(lines[-1])


def assert_right(found: dict[str, object]) -> None:
    """No output failed, there were outputs, and thread order did not matter."""
    assert not found["failures"], found["failures"]
    assert found["outputs"]
    assert found["same_in_any_order"], "the result depends on the order in which threads run"


@pytest.mark.parametrize("model", QUICK)
def test_small_model(model: str) -> None:
    assert_right(outcome(model, "emulator:sm_80"))


@pytest.mark.slow
@pytest.mark.parametrize("model", [e.name for e in SMALL if e.name not in QUICK])
def test_other_small_model(model: str) -> None:
    assert_right(outcome(model, "emulator:sm_80"))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["emulator:sm_75", "emulator:sm_90", "emulator:sm_120"])
def test_other_generation(target: str) -> None:
    assert_right(outcome("bert_small", target))


@pytest.mark.slow
@pytest.mark.parametrize("model", [e.name for e in SMALL])
def test_no_access_is_a_hazard(model: str) -> None:
    """Every access of every kernel: inside its buffer, aligned, written before it is read, no race."""
    assert_right(outcome(model, "emulator:sm_80-checked"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("resnet_small", "f16"),
        ("vit_small", "bf16"),
        ("unet_small", "tf32"),
        ("unet_small_dynamic", "f16"),
    ],
)
def test_no_access_of_matrix_units_is_a_hazard(model: str, precision: str) -> None:
    assert_right(outcome(model, "emulator:sm_80-checked", precision))


@pytest.mark.parametrize("precision", ["f16"])
def test_precision(precision: str) -> None:
    assert_right(outcome("bert_small", "emulator:sm_80", precision))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_other_precision(precision: str) -> None:
    assert_right(outcome("bert_small", "emulator:sm_80", precision))
