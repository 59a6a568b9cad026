"""Random models with fixed seeds: every stage in numpy, and a pack of them compiled.

scripts/fuzz.py runs the same with other seeds for as long as wanted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from models import fuzz_compiled
from models.fuzz_compiled import packs, run_compiled
from models.fuzzing import Fault, Skip, examine
from models.random_blocks import VOCABULARY
from models.random_graph import Made, generate

SEEDS = 24
MORE_SEEDS = 300
MOST_SKIPPED = 0.2  # of the models: more would mean that the generator makes little of use


def judged(seeds: range, special: bool = False) -> None:
    """Every model right at every stage, and few of them unusable."""
    wrong: list[str] = []
    skipped: list[str] = []
    for seed in seeds:
        made = generate(seed, VOCABULARY, special=special)
        try:
            fault = examine(made.model, made.feeds, external=not special)
        except Skip as reason:
            skipped.append(f"{seed}: {reason}")
            continue
        if fault is not None:
            wrong.append(f"seed {seed}: {fault}")
    assert not wrong, "\n".join(wrong)
    assert len(skipped) <= MOST_SKIPPED * len(seeds), "\n".join(skipped)


def test_stages() -> None:
    judged(range(SEEDS))


def test_stages_with_special_values() -> None:
    judged(range(1000, 1000 + SEEDS // 3), special=True)


@pytest.mark.slow
def test_more_stages() -> None:
    judged(range(2000, 2000 + MORE_SEEDS))
    judged(range(3000, 3000 + MORE_SEEDS), special=True)


def compiled(first: int, size: int, folder: Path, target: str) -> None:
    """One pack, right in every output of every run."""
    pack = next(packs(first, size))
    faults = run_compiled(pack.whole, folder, target)
    named = [f"seed {pack.part(name).seed}: {fault}" for name, fault in faults.items()]
    assert not named, "\n".join(named)


def test_a_pack_that_stops_the_compiler_is_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part at fault is named; where only all of them together fail, the pack is."""
    pack = next(packs(50_000, 4))
    *_, third, _ = pack.parts
    most = 4

    def stopping(made: Made, folder: Path, target: str) -> dict[str, Fault]:
        parts = {value.name.partition("_")[0] for value in made.model.graph.output}
        if third in parts or len(parts) >= most:
            raise ValueError("stopped")
        return {}

    monkeypatch.setattr(fuzz_compiled, "run_compiled", stopping)
    assert list(fuzz_compiled.faults_of(pack, tmp_path, "cpu")) == [third]
    third = "none"
    (fault,) = fuzz_compiled.faults_of(pack, tmp_path, "cpu").values()
    assert fault.reason == "ValueError: stopped"


def test_compiled(tmp_path: Path) -> None:
    compiled(40_000, 8, tmp_path, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("first", [41_000, 42_000, 43_000])
def test_more_compiled(first: int, tmp_path: Path) -> None:
    compiled(first, 24, tmp_path, "cpu")


@pytest.mark.slow
def test_emulated(tmp_path: Path) -> None:
    compiled(44_000, 8, tmp_path, "emulator:sm_80")
