"""How far the tools are: bars where a person looks, plain lines now and then elsewhere.

Not here: other output (face.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from unistack_aot.cli.face import Face, duration

PAUSE = 10.0
"""Seconds between two plain lines, and before the first."""
Told = Callable[[str, int, int], None]


@contextmanager
def progress(face: Face) -> Generator[Told]:
    """A callback that shows on standard error how many tool runs of each target are done."""
    if face.as_json or face.quiet:
        yield lambda name, done, total: None
    elif sys.stderr.isatty():
        with Progress(
            TextColumn("  {task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as shown:
            yield Bars(shown)
    else:
        yield Lines()


class Bars:
    """One bar per target; targets are built by several threads."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._tasks: dict[str, Any] = {}
        self._lock = Lock()

    def __call__(self, name: str, done: int, total: int) -> None:
        """So many of so many tool runs are finished; a bar without an end while their number is unknown."""
        with self._lock:
            if name not in self._tasks:
                self._tasks[name] = self._shown.add_task(name, total=total or None)
        self._shown.update(self._tasks[name], completed=done, total=total or None)


class Lines:
    """A line for all targets together, at most every PAUSE seconds."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._start = self._last = clock()
        self._known: dict[str, tuple[int, int]] = {}
        self._lock = Lock()

    def __call__(self, name: str, done: int, total: int) -> None:
        """So many of so many tool runs are finished."""
        with self._lock:
            self._known[name] = (done, total)
            now = self._clock()
            if now - self._last < PAUSE:
                return
            self._last = now
            finished = sum(each for each, _ in self._known.values())
            left = sum(total for _, total in self._known.values()) - finished
            estimate = (now - self._start) / max(1, finished) * left
        said = ", ".join(
            f"{name} {done} of {total}" for name, (done, total) in self._known.items() if total
        )
        print(f"  building {said}; about {duration(estimate)} left", file=sys.stderr, flush=True)
