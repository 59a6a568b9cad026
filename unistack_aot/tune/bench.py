"""Trials on the device: built within a time limit, run, compared with the usual ways' outputs, timed.

Not here: which ways are tried (search.py), what is remembered (database.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Timer
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from unistack_aot.aicf.graph import Graph
from unistack_aot.base.errors import UnistackError
from unistack_aot.packing import Trial
from unistack_aot.runtime.session import Session, load
from unistack_aot.targets.toolchain import stop_tools

RUNS, SECONDS = 5, 1.0  # of one round's timing: at least so many, and so long
Arrays = Mapping[str, NDArray[Any]]
Feeds = Callable[[Session, Graph | None], Arrays]
Differ = Callable[[Graph | None, Arrays, Arrays, Arrays], str]
Times = Mapping[int, float]


class TimeIsOver(Exception):
    """The tools were stopped because the time for measuring is over."""


def seconds_by_launch(session: Session, feeds: Arrays) -> Times:
    """Seconds of every launch of one run, by number."""
    return {each.number: each.seconds / each.runs for each in session.profile(feeds)}


@dataclass(frozen=True, slots=True)
class Bench:
    """What measuring needs of the machine.

    `device` names where a target's times mean something, or raises; `feeds` draws inputs; `differs` says why outputs
    for these feeds are not the wanted ones ("": they are, within rounding); `clock` times one run.
    """

    device: Callable[[str], str]
    feeds: Feeds
    differs: Differ
    threads: int
    clock: Callable[[Session, Arrays], Times] = seconds_by_launch

    def loaded(self, trial: Trial, device: str) -> Loaded:
        """The trial, run once."""
        session = load(trial.package, device, self.threads)
        feeds = self.feeds(session, trial.graph)
        return Loaded(trial, session, feeds, session.run(feeds))

    def least(self, trials: Sequence[Loaded]) -> list[dict[int, float]]:
        """Least seconds of every launch of each trial; trials take turns."""
        best: list[dict[int, float]] = [{} for _ in trials]
        end, runs = perf_counter() + SECONDS * len(trials), 0
        while runs < RUNS or perf_counter() < end:
            runs += 1
            for each, least in zip(trials, best, strict=True):
                for number, seconds in self.clock(each.session, each.feeds).items():
                    least[number] = min(seconds, least.get(number, seconds))
        return best


@dataclass(frozen=True, slots=True)
class Loaded:
    """A trial on its device, its inputs, and what it made of them."""

    trial: Trial
    session: Session
    feeds: Arrays
    outputs: Arrays


@contextmanager
def no_later_than(end: float) -> Generator[None, None, None]:
    """Compilers that still run when the clock shows `end` are stopped: TimeIsOver."""
    over = Event()

    def stop() -> None:
        over.set()
        stop_tools()

    timer = Timer(max(0.0, end - perf_counter()), stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except UnistackError as error:
        if over.is_set():
            raise TimeIsOver from error
        raise
    finally:
        timer.cancel()
