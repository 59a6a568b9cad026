"""Models whose branches fit only some inputs, compiled and run: the branch not meant refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import unistack_aot as ua
from models.catalogue import CATALOGUE, entry
from models.fetch import ModelUnavailable
from tests.pure.test_onnx_in_branches import REASON, W, X, model

ROOT = Path(__file__).parents[2]
VOICE = [item.name for item in CATALOGUE if item.name.startswith("silero_vad")]


@pytest.mark.parametrize("after", [(), ("NoSuchOperator",)])
def test_a_run_that_takes_the_refusing_branch_ends_with_its_reason(
    tmp_path: Path, after: tuple[str, ...]
) -> None:
    package = tmp_path / "m.pkg"
    proto = model(("Neg",), ("Add", *after))
    report = ua.compile_model(proto, package, dims={"rows": 3, "others": 5})
    assert report.remarks == (REASON,)
    session = ua.load(package, device="cpu")
    for _ in range(2):
        found = session.run({"x": X, "w": W, "c": np.array(True)})
        np.testing.assert_array_equal(found["y"], -X)
        with pytest.raises(ua.UnistackError) as error:
            session.run({"x": X, "w": W, "c": np.array(False)})
        assert error.value.what == REASON
    if not after:  # onnxruntime does not even load a model with an unknown operator
        assert ua.check(proto, package)


def failures(name: str, target: str, cases: list[str]) -> list[str]:
    """What a fresh process found wrong with a model of voice activity."""
    try:
        entry(name).load()
    except ModelUnavailable as error:
        pytest.skip(str(error).replace("\n", ";"))
    if target.startswith("emulator") and find_spec("pycuda") is None:
        pytest.skip("pycuda is not installed (scripts/setup.sh builds it)")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.models.sized_models", target, name, *cases],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


@pytest.mark.parametrize("case", ["16k", "8k"])
def test_voice_activity_at_one_rate(case: str) -> None:
    """The branch of the other rate has operands of other ranks."""
    assert failures("silero_vad_base", "cpu", [case]) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "emulator:sm_90"])
@pytest.mark.parametrize("name", VOICE)
def test_voice_activity(name: str, target: str) -> None:
    assert failures(name, target, list(entry(name).cases)) == []
