"""docs/walkthrough.md is what scripts/walkthrough.py writes now."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from scripts.walkthrough import MACHINE_CODE, PAGE, TRAFFIC, without

ROOT = Path(__file__).resolve().parents[2]


@cache
def compared() -> subprocess.CompletedProcess[str]:
    """The script's own comparison; parts that this machine cannot make it names and leaves out."""
    command = [sys.executable, "scripts/walkthrough.py", "--check"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def assert_same() -> None:
    """The comparison was good."""
    why = compared().stderr or "write it again with scripts/walkthrough.py, and read what changed"
    assert compared().returncode == 0, why


def test_the_walkthrough_is_up_to_date() -> None:
    assert_same()


@pytest.mark.parametrize("title", [MACHINE_CODE, TRAFFIC])
def test_parts_that_need_tools_are_up_to_date(title: str) -> None:
    left_out = re.search(f"not compared: {re.escape(title)}: (.*)", compared().stdout)
    if left_out is not None:
        pytest.skip(left_out[1])
    assert_same()


@pytest.mark.parametrize("title", [MACHINE_CODE, TRAFFIC])
def test_a_part_can_be_left_out(title: str) -> None:
    """Each model has it, and leaving it out leaves all else."""
    page = PAGE.read_text()
    heading = f"### {title}\n"
    rest = without(page, title)
    assert page.count(heading) == 3
    assert heading not in rest
    others = [line for line in page.splitlines() if line.startswith("##") and title not in line]
    assert [line for line in rest.splitlines() if line.startswith("##")] == others
