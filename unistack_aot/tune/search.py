"""The search for faster ways: rounds of trials measure promising ones in place.

A round builds the whole program with the next way of every kernel and times each launch inside it,
so one build tries one way of all kernels, each among the caches and neighbours it will have. Which
way is next follows from all that was measured (proposals.py). Every result is stored at once: a
search that is interrupted goes on where it stopped, and the best so far is what a compilation takes.
At the end the best ways and the usual ones run in turns, so that one quiet moment decides nothing.
Not here: the storage (database.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from unistack_aot.aicf.graph import Graph
from unistack_aot.base.errors import BadInput, UnistackError
from unistack_aot.hw import propmap
from unistack_aot.packing import Builder, Trial, Tuned
from unistack_aot.runtime.session import Session, load
from unistack_aot.schedule.candidates import Choice, Pick
from unistack_aot.targets.target import Request, Target
from unistack_aot.tune.database import Database, Entry, Setting
from unistack_aot.tune.proposals import Space, next_way

FEW = 6  # ways of a kernel that are measured, the usual one among them
NOISE = 0.01  # a way must beat the usual one by more than times differ from run to run
RUNS, SECONDS = 5, 1.0  # of one round's timing: at least so many, and so long
Feeds = Callable[[Session, Graph | None], Mapping[str, object]]


class Lookup(Mapping[str, Pick]):
    """Ways that are found by kernel, and not listed."""

    def __iter__(self) -> Iterator[str]:
        raise TypeError("ways are found by kernel")

    def __len__(self) -> int:
        raise TypeError("ways are found by kernel")


class Stored(Lookup):
    """The best stored way of every kernel of one setting, read when it is asked for."""

    def __init__(self, database: Database, setting: Setting) -> None:
        self.database, self.setting = database, setting

    def entry(self, key: str) -> Entry | None:
        """The stored entry of a kernel."""
        return self.database.read(self.setting.name(key))

    def __getitem__(self, key: str) -> Pick:
        entry = self.entry(key)
        if entry is None or not entry.measured:
            raise KeyError(key)
        return Pick(best_way(entry), entry.measured)


def best_way(entry: Entry) -> str:
    """The fastest measured way; the usual one where that is as fast, within what times differ."""
    fastest = min(entry.measured, key=lambda way: (entry.measured[way], way))
    usual = entry.measured.get(entry.usual)
    if usual is not None and usual * (1 - NOISE) <= entry.measured[fastest]:
        return entry.usual
    return fastest


@dataclass(frozen=True, slots=True)
class Search:
    """Spends `seconds` on each variant that runs here; 0 takes what the database holds.

    `few` ways of a kernel are tried at most.
    """

    seconds: float
    database: Database
    feeds: Feeds
    threads: int
    few: int = FEW
    say: Callable[[str], None] = field(default=lambda _: None)

    def __call__(self, target: Target, request: Request, build: Builder) -> Tuned:
        """The request with the best known ways, and what was done."""
        setting = Setting(
            propmap.text(request.on(target.machine(request.level)).map),
            target.toolchain(request.level),
            self.threads,
        )
        stored = Stored(self.database, setting)
        best = replace(request, picks=stored)
        if self.seconds <= 0:
            return Tuned(best, f"ways from {self.database.folder}")
        device = request.name.partition(":")[0]
        if device == "emulator":
            raise BadInput(
                "an emulator has no speed to tune for", at=request.name, hint="leave --tune out"
            )
        try:
            return Tuned(best, self._rounds(best, build, device, stored))
        except UnistackError as error:
            if error.exit_code != 2:
                raise
            return Tuned(best, f"not measured: {error.what}")

    def _rounds(self, best: Request, build: Builder, device: str, stored: Stored) -> str:
        end = perf_counter() + self.seconds
        trials, longest, picks = 0, 0.0, dict[str, Pick]()
        while True:
            began = perf_counter()
            asked = replace(best, picks=_Over(stored, picks), whole=not trials)
            with tempfile.TemporaryDirectory(prefix="tune-") as folder:
                trial = build(asked, Path(folder) / "trial.pkg")
                if not trial.choices:
                    return "nothing measured: no kernel offers ways, each is the best predicted"
                (times,) = self._measured((trial,), device)
            trials += self._store(trial, times, stored)
            longest = max(longest, perf_counter() - began)
            picks = {c.key: Pick(way, on_trial=True) for c, way in self._next(trial, stored)}
            self.say(f"{trials} trials, {len(picks)} kernels with more to try")
            if not picks or perf_counter() + longest > end:
                break
        if perf_counter() + 2 * longest <= end:
            self._finals(best, build, device, stored)
        changed = sum(self._best(choice, stored) != choice.usual for choice in trial.choices)
        left = f", {len(picks)} kernels not searched to the end" if picks else ""
        return (
            f"{trials} ways of {len(trial.choices)} kernels measured, "
            f"{changed} kernels differ from the usual way{left}"
        )

    def _best(self, choice: Choice, stored: Stored) -> str:
        entry = stored.entry(choice.key)
        return choice.usual if entry is None else best_way(entry)

    def _next(self, trial: Trial, stored: Stored) -> Iterator[tuple[Choice, str]]:
        """The next way of each choice, while fewer than `few` were measured."""
        for choice in trial.choices:
            if not trial.launches[choice.key]:
                continue  # its launch became another kernel's part
            entry = stored.entry(choice.key)
            known = {} if entry is None else entry.measured
            predicted = dict(choice.ways) if entry is None else entry.predicted
            way = next_way(Space(choice.usual, predicted, choice.places), known)
            if way is not None and len(known) < self.few:
                yield choice, way

    def _finals(self, best: Request, build: Builder, device: str, stored: Stored) -> None:
        """Measure the best way of every kernel and the usual one again, in turns."""
        with tempfile.TemporaryDirectory(prefix="tune-") as folder:
            asked = {"best": stored, "usual": _Usual(stored)}
            trials = [
                build(replace(best, picks=picks), Path(folder) / f"{name}.pkg")
                for name, picks in asked.items()
            ]
            for trial, times in zip(trials, self._measured(trials, device), strict=True):
                self._store(trial, times, stored)

    def _measured(self, trials: Sequence[Trial], device: str) -> list[dict[int, float]]:
        """Least seconds of every launch of each trial; trials take turns."""
        sessions = [load(trial.package, device, self.threads) for trial in trials]
        feeds = [
            self.feeds(session, trial.graph)
            for session, trial in zip(sessions, trials, strict=True)
        ]
        best: list[dict[int, float]] = [{} for _ in trials]
        end, runs = perf_counter() + SECONDS * len(trials), 0
        while runs < RUNS or perf_counter() < end:
            runs += 1
            for session, given, least in zip(sessions, feeds, best, strict=True):
                for launch in session.profile(given):
                    seconds = launch.seconds / launch.runs
                    least[launch.number] = min(seconds, least.get(launch.number, seconds))
        return best

    def _store(self, trial: Trial, times: Mapping[int, float], stored: Stored) -> int:
        """Add the round's times to the database; how many there are."""
        count = 0
        for choice in trial.choices:
            launches = [n for n in trial.launches[choice.key] if n in times]
            if not launches:
                continue
            entry = stored.entry(choice.key)
            entry = entry or Entry(choice.subject, choice.usual, dict(choice.ways))
            seconds = sum(times[number] for number in launches) / len(launches)
            entry = entry.with_time(choice.chosen, max(seconds, 1e-9))
            stored.database.write(stored.setting.name(choice.key), entry)
            count += 1
        return count


class _Over(Lookup):
    """Ways on trial over stored ones."""

    def __init__(self, stored: Stored, trials: Mapping[str, Pick]) -> None:
        self.stored, self.trials = stored, trials

    def __getitem__(self, key: str) -> Pick:
        return self.trials[key] if key in self.trials else self.stored[key]


class _Usual(Lookup):
    """The usual way of every kernel that was measured."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored

    def __getitem__(self, key: str) -> Pick:
        entry = self.stored.entry(key)
        if entry is None:
            raise KeyError(key)
        return Pick(entry.usual, on_trial=True)
