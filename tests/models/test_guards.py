"""Generated code for the host reads nothing outside of its inputs, not even what it throws away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from models.catalogue import SMALL
from tests.build.cpu_graphs import levels_here
from tests.models.guarded_run import PIECES


def stays_inside(model: str, level: str) -> None:
    """Run in a process of its own, which a forbidden access ends."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.models.guarded_run", model, f"cpu:{level}"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "inside"), ran.stderr[-2000:]


@pytest.mark.parametrize("level", levels_here())
def test_conditional_loads(level: str) -> None:
    """GCC 12 makes masked loads of known masks into loads of all lanes."""
    stays_inside(PIECES, level)


@pytest.mark.slow
@pytest.mark.parametrize("model", [each.name for each in SMALL])
def test_small_model(model: str) -> None:
    stays_inside(model, levels_here()[-1])
