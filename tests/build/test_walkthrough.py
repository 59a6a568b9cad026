"""docs/walkthrough.md is what scripts/walkthrough.py writes now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_walkthrough_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/walkthrough.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    why = done.stderr or "write it again with scripts/walkthrough.py, and read what changed"
    assert done.returncode == 0, why
