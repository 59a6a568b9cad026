"""docs/models.md: the whole catalogue, written from recorded verdicts, of this version."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from models import records
from models.catalogue import CATALOGUE, NOT_JUDGED, REFUSED, Entry, entry
from models.judged import Judged
from models.summary import summarize
from unistack_aot import __version__

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = records.read(DOCS / "models.json")
AGAIN = "run: scripts/models.py check --record docs/models.json (--device emulator), and: page"


def test_page_is_what_the_records_say() -> None:
    assert (DOCS / "models.md").read_text() == records.page(RECORDS), AGAIN


def test_every_model_was_judged_wherever_its_kind_is_and_all_are_listed() -> None:
    missing = records.missing(RECORDS)
    assert not missing, f"{AGAIN}\n{missing}"
    listed = re.findall(r"^\| (\w+) \|", (DOCS / "models.md").read_text(), re.MULTILINE)
    names = [name for name in listed if name != "model"]
    assert sorted(names) == sorted(item.name for item in CATALOGUE)


def test_what_is_not_judged_is_said_with_its_reason() -> None:
    for (name, device), reason in NOT_JUDGED.items():
        assert device in records.DEVICES[entry(name).kind], f"{name} is never judged on {device}"
        found = RECORDS[name].findings if name in RECORDS else {}
        assert device not in found, f"{name} has a verdict on {device}"
        row = next(
            line for line in records.page(RECORDS).splitlines() if line.startswith(f"| {name} |")
        )
        assert f"| {reason} |" in row
    lacking = {name: record for name, record in RECORDS.items() if name != "gru_small"}
    assert records.missing(lacking) == [("gru_small", "cpu"), ("gru_small", "emulator")]
    [row] = [r for r in records.page(lacking).splitlines() if r.startswith("| gru_small |")]
    assert row.count("| not judged yet ") == 2


def test_verdicts_are_of_this_version_and_none_is_bad() -> None:
    states: dict[str, set[str]] = {}
    for name, record in RECORDS.items():
        for finding in record.findings.values():
            assert finding.version == __version__, f"{name}: {AGAIN}"
            date.fromisoformat(finding.day)
            states.setdefault(finding.found.state, set()).add(name)
    assert states.keys() == {"right", "refused"}
    assert states["refused"] == REFUSED & RECORDS.keys()


@pytest.mark.parametrize("item", [e for e in CATALOGUE if e.kind == "small"], ids=lambda e: e.name)
def test_a_recipe_is_still_the_one_that_was_judged(item: Entry) -> None:
    summary = summarize(item.load())
    found = (summary.nodes, len(summary.ops))
    assert found == (RECORDS[item.name].nodes, RECORDS[item.name].operators), AGAIN


def test_records_survive_a_file(tmp_path: Path) -> None:
    found = records.dated(Judged("cpu:x86-64-v3", "right", "", 3, 1.5, 2, "9.8", "243", 64, 32))
    made = {
        "bert_small": records.Record("00ff", 96, 15, {"cpu": found}),
        "gone": RECORDS["gru_small"],
    }
    records.write(tmp_path / "r.json", made)
    assert records.read(tmp_path / "r.json") == {"bert_small": made["bert_small"]}
    row = next(
        line for line in records.page(made).splitlines() if line.startswith("| bert_small |")
    )
    assert row.endswith("| 96 | 15 | 3 | 9.8 of 243 | not judged yet | 1.5 | 64 B (32 B) |")
