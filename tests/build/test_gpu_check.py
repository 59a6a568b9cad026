"""scripts/gpu_check.sh with a stand-in for Python: what fails or hangs takes nothing from the other steps."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAND_IN = """#!/bin/sh
case "$*" in
    *bad*) echo broken; exit 3 ;;
    *hangs*) exec sleep 60 ;;
esac
"""


def test_a_step_takes_nothing_from_the_others(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    (packages / "ops").mkdir(parents=True)
    for name in ("good", "good.f16", "bad", "hangs", "ops/product.f16", "ops/hangs.f32"):
        (packages / f"{name}.pkg").touch()
    stand_in = tmp_path / "python"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    out = tmp_path / "out"
    more = {"PYTHON": str(stand_in), "OUT": str(out), "BUDGET": "8", "DEVICE": "cuda:0"}
    start = time.monotonic()
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/gpu_check.sh"), "run", str(packages)],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert time.monotonic() - start < 100
    assert done.returncode == 1
    rows = [line.split("\t") for line in (out / "summary.tsv").read_text().splitlines()[1:]]
    status = {name: code for name, code, _ in rows}
    for step in ("doctor", "selftest-good", "check-good", "check-good.f16", "op-check-product.f16"):
        assert status[step] == "0", step
    assert status["check-bad"] == status["selftest-bad"] == "3"
    assert status["check-hangs"] == "124"
    # the budget is spent: what is left is named, none is lost
    assert (
        status["time-good"]
        == status["tune"]
        == status["probe"]
        == status["peers"]
        == "no time left"
    )
    failed = sum(code != "0" for code in status.values())
    assert f"{failed} of {len(status)} steps failed" in done.stdout
    with tarfile.open(out / "logs.tar.gz") as logs:
        member = logs.extractfile("./check-bad.log")
        assert member is not None
        assert member.read() == b"broken\n"
