"""docs/benchmarks.md says where, when and with what its figures were measured, and they agree with each other."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from models.catalogue import entry
from unistack_aot import __version__

PAGE = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|")
]


def test_page_says_how_it_was_made() -> None:
    commands = re.findall(r"^```sh\n(scripts/bench\.py .*)\n```$", PAGE, re.MULTILINE)
    assert commands
    assert all("--threads" in command and "--markdown" in command for command in commands)
    [day] = re.findall(r"on (\d{4}-\d\d-\d\d), on (?:\d+) cores of ", PAGE)
    assert date.fromisoformat(day)
    versions = {row[0]: row[1] for row in ROWS if len(row) == 2}
    assert versions["unistack_aot"] == __version__
    assert {"onnxruntime", "openvino", "C++ compiler", "Python, numpy", "system"} <= versions.keys()
    assert re.search(r"multiply-add peak: [\d.]+ GFLOP/s on \d+ threads", PAGE)


def test_figures_agree_with_each_other() -> None:
    peak = re.findall(r"peak: ([\d.]+) GFLOP/s", PAGE)[0]
    work = ours = 0.0
    compared = 0
    for model, size, system, middle, best, runs, rate, share, ratio in (
        row for row in ROWS if len(row) == 9 and row[5].isdigit()
    ):
        if model:
            entry(model)  # in the catalogue
            work, ours = float(size), float(middle)
            assert system == "unistack_aot"
        else:
            assert abs(float(ratio.removesuffix(" x")) - float(middle) / ours) < 0.02, (
                system,
                ratio,
            )
            compared += 1
        assert float(best) <= float(middle)
        assert int(runs) >= 5
        assert abs(float(rate) - 1e3 * work / float(middle)) < 0.03 * float(rate), (model, system)
        assert abs(float(share.removesuffix(" %")) - 100 * float(rate) / float(peak)) < 1
    assert compared >= 4
