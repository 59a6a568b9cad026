"""The search for faster ways: rounds of trials measure promising ones in place.

The first round takes the usual ways; what it computes is what every other round must compute. A round
builds the whole program with the next way of every kernel and times each launch inside it, so one
build tries one way of all kernels, each among the caches and neighbours it will have. Which way is
next follows from all that was measured (proposals.py). A round that fails or computes something else
is taken apart until the ways that are to blame are known: they are refused for good. Every result is
stored at once: a search that is interrupted goes on where it stopped, and the best so far is what a
compilation takes. At the end the best ways and the usual ones run in turns, so that one quiet moment
decides nothing. Not here: the storage (database.py), building and timing a trial (bench.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

from unistack_aot.base.errors import UnistackError
from unistack_aot.hw import propmap
from unistack_aot.packing import Builder, Trial, Tuned
from unistack_aot.schedule.choices import Choice, Pick
from unistack_aot.targets.target import Request, Target
from unistack_aot.tune.bench import Arrays, Bench, Loaded, TimeIsOver, Times, no_later_than
from unistack_aot.tune.database import Database, Entry, Setting
from unistack_aot.tune.proposals import Space, next_way

FEW = 6  # ways of a kernel that are tried, the usual one among them
NOISE = 0.01  # a way must beat the usual one by more than times differ from run to run


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
        if entry is None or not entry.tried:
            raise KeyError(key)
        return Pick(best_way(entry), entry.measured, refused=entry.refused)

    def best(self, choice: Choice) -> str:
        """The way of a choice that a compilation takes."""
        entry = self.entry(choice.key)
        return choice.usual if entry is None else best_way(entry)

    def keep(self, choice: Choice, seconds: float | None, refused: Mapping[str, str]) -> None:
        """Add what is known of a choice: the seconds of its chosen way, ways to refuse."""
        entry = self.entry(choice.key) or Entry(choice.subject, choice.usual, dict(choice.ways))
        if seconds is not None:
            entry = entry.with_time(choice.chosen, max(seconds, 1e-9))
        self.database.write(self.setting.name(choice.key), entry.without(refused))


def best_way(entry: Entry) -> str:
    """The fastest measured way that was not refused; the usual one where that is as fast, within what times differ."""
    sound = [way for way in entry.measured if way not in entry.refused]
    fastest = min(sound, key=lambda way: (entry.measured[way], way), default=entry.usual)
    if entry.usual in sound:
        usual = entry.measured[entry.usual]
        return entry.usual if usual * (1 - NOISE) <= entry.measured[fastest] else fastest
    return fastest


@dataclass(frozen=True, slots=True)
class Search:
    """Spends `seconds` on each variant that runs here; 0 takes what the database holds.

    `few` ways of a kernel are tried at most.
    """

    seconds: float
    database: Database
    bench: Bench
    few: int = FEW
    say: Callable[[str], None] = field(default=lambda _: None)

    def __call__(self, target: Target, request: Request, build: Builder) -> Tuned:
        """The request with the best known ways, and what was done."""
        machine = request.on(target.machine(request.level))
        threads = 0 if machine.is_wide else self.bench.threads
        setting = Setting(propmap.text(machine.map), target.toolchain(request.level), threads)
        stored = Stored(self.database, setting)
        best = replace(request, picks=stored)
        if self.seconds <= 0:
            return Tuned(best, f"ways from {self.database.folder}")
        try:
            device = self.bench.device(request.name)
            end = perf_counter() + self.seconds
            return Tuned(best, _Hunt(self, request, build, device, stored, end).run())
        except UnistackError as error:
            if error.exit_code != 2:
                raise
            return Tuned(best, f"not measured: {error.what}")


@dataclass
class _Hunt:
    """One search on one device; `usual` is what the usual ways compute, `longest` the seconds of a round."""

    search: Search
    request: Request
    build: Builder
    device: str
    stored: Stored
    end: float
    usual: Arrays | None = None
    longest: float = 0.0
    trials: int = 0

    def run(self) -> str:
        """Round after round while there is something to try, and time; what was done."""
        first = self.round({})
        assert not isinstance(first, str)  # the usual ways run, or an error says why not
        choices = first.choices
        if not choices:
            return "nothing measured: no kernel offers ways, each is the best predicted"
        picks = dict[str, str]()
        try:
            while picks := self.next_ways(first):
                self.search.say(f"{self.trials} trials, {len(picks)} kernels with more to try")
                if perf_counter() + self.longest > self.end:
                    break
                self.tried(choices, picks)
            if perf_counter() + 2 * self.longest <= self.end:
                self.finals(choices)
        except TimeIsOver:
            self.search.say("the time is over; what was measured is kept")
        changed = sum(self.stored.best(choice) != choice.usual for choice in choices)
        left = f", {len(picks)} kernels not searched to the end" if picks else ""
        return (
            f"{self.trials} ways of {len(choices)} kernels measured, "
            f"{changed} kernels differ from the usual way{self.refusals(choices)}{left}"
        )

    def refusals(self, choices: Iterable[Choice]) -> str:
        """How many ways are known to be no good, in words."""
        entries = filter(None, (self.stored.entry(choice.key) for choice in choices))
        count = sum(len(entry.refused) for entry in entries)
        return f", {count} ways refused" if count else ""

    def next_ways(self, trial: Trial) -> dict[str, str]:
        """The next way of each choice, by key, while fewer than `few` were tried."""
        return dict(self._next(trial))

    def _next(self, trial: Trial) -> Iterator[tuple[str, str]]:
        for choice in trial.choices:
            if not trial.launches[choice.key]:
                continue  # its launch became another kernel's part
            entry = self.stored.entry(choice.key)
            entry = entry or Entry(choice.subject, choice.usual, dict(choice.ways))
            sound = {w: s for w, s in entry.predicted.items() if w not in entry.refused}
            way = next_way(Space(entry.usual, sound, choice.places), entry.measured)
            if way is not None and len(entry.tried) < self.search.few:
                yield choice.key, way

    def bests(self, choices: Iterable[Choice]) -> dict[str, str]:
        """The best known way of every kernel that has another than the usual one."""
        best = {choice.key: self.stored.best(choice) for choice in choices}
        return {
            choice.key: best[choice.key] for choice in choices if best[choice.key] != choice.usual
        }

    def tried(self, choices: tuple[Choice, ...], picks: Mapping[str, str]) -> None:
        """A round of ways over the best known ones; those to blame for a failure are refused."""
        asked = {**self.bests(choices), **picks}
        found = self.round(asked)
        if isinstance(found, str):
            self.refuse(choices, self.blamed(asked, found))
            return
        made = {choice.key: choice for choice in found.choices}
        lost = {
            key: (way, "not possible beside the others")
            for key, way in picks.items()
            if way != made[key].chosen and way not in made[key].refused
        }
        self.refuse(choices, lost)

    def round(self, ways: Mapping[str, str]) -> Trial | str:
        """Build these ways, the usual ones elsewhere; run, time and store them. The reason if they are no good."""
        began = perf_counter()
        with tempfile.TemporaryDirectory(prefix="tune-") as folder:
            found = self.loaded(ways, Path(folder))
            if isinstance(found, str):
                return found
            (times,) = self.search.bench.least((found,))
        self.store(found.trial, times)
        self.longest = max(self.longest, perf_counter() - began)
        return found.trial

    def loaded(self, ways: Mapping[str, str], folder: Path) -> Loaded | str:
        """The program with these ways, run once and found to compute what it must; else the reason."""
        picks = {key: Pick(way, on_trial=True) for key, way in ways.items()}
        request = replace(self.request, picks=picks, whole=self.usual is None)
        bench, usual = self.search.bench, self.usual
        try:
            with nullcontext() if usual is None else no_later_than(self.end):
                trial = self.build(request, folder / "trial.pkg")
            found = bench.loaded(trial, self.device)
        except UnistackError as error:
            if usual is None:
                raise
            return error.what
        if usual is None:
            self.usual = found.outputs
            return found
        return bench.differs(trial.graph, found.feeds, usual, found.outputs) or found

    def blamed(self, ways: Mapping[str, str], reason: str) -> dict[str, tuple[str, str]]:
        """The ways to blame for a failure; an error if the usual ones fail now as well."""
        with tempfile.TemporaryDirectory(prefix="tune-") as folder:
            still = self.loaded({}, Path(folder))
        if isinstance(still, str):
            raise UnistackError(
                f"the usual ways do not give the same outputs again ({still}), since this was on trial: "
                f"{', '.join(dict.fromkeys(ways.values()))} ({reason})",
                at=self.request.name,
                hint="run again without --tune",
            )
        return self.culprits(ways, reason)

    def culprits(self, ways: Mapping[str, str], reason: str) -> dict[str, tuple[str, str]]:
        """Which of the ways that failed together fail by themselves, found by halves; all if only together."""
        if len(ways) == 1:
            return {key: (way, reason) for key, way in ways.items()}
        keys, found = list(ways), dict[str, tuple[str, str]]()
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            part = {key: ways[key] for key in half}
            with tempfile.TemporaryDirectory(prefix="tune-") as folder:
                failed = self.loaded(part, Path(folder))
            if isinstance(failed, str):
                found |= self.culprits(part, failed)
        return found or {key: (way, f"together with others: {reason}") for key, way in ways.items()}

    def refuse(self, choices: Iterable[Choice], culprits: Mapping[str, tuple[str, str]]) -> None:
        """Remember ways that must never be taken."""
        for choice in choices:
            if choice.key in culprits:
                way, reason = culprits[choice.key]
                self.search.say(f"{choice.subject}: {way} is refused: {reason}")
                self.stored.keep(choice, None, {way: reason})

    def finals(self, choices: tuple[Choice, ...]) -> None:
        """Measure the best way of every kernel and the usual one again, in turns."""
        asked = self.bests(choices)
        with tempfile.TemporaryDirectory(prefix="tune-") as scratch:
            folders = [Path(scratch) / name for name in ("best", "usual")]
            for folder in folders:
                folder.mkdir()
            best, usual = (
                self.loaded(ways, folder) for ways, folder in zip((asked, {}), folders, strict=True)
            )
            if isinstance(best, str):
                self.refuse(choices, self.blamed(asked, best))
            elif not isinstance(usual, str):
                for found, times in zip(
                    (best, usual), self.search.bench.least((best, usual)), strict=True
                ):
                    self.store(found.trial, times)

    def store(self, trial: Trial, times: Times) -> None:
        """Add a round's times, and what the tool chain refused, to the database."""
        for choice in trial.choices:
            whole = [
                sum(times[number] for number in group)
                for group in trial.launches[choice.key]
                if all(number in times for number in group)
            ]
            if not whole and not choice.refused:
                continue
            self.trials += bool(whole)
            seconds = sum(whole) / len(whole) if whole else None
            self.stored.keep(choice, seconds, choice.refused)
