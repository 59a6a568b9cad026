"""The ways of a kernel on a machine with managed near memory, by predicted time, and who chose among them.

The usual way is the one that the target's own rule prefers; only a measurement takes another. Not here: which ways
there are (block_tiles.py, attention_blocks.py, steps.py), the ways of cores (candidates.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Generic, TypeVar

from unistack_aot.schedule.choices import Choice, Pick, found_of, reason_of, tried_of
from unistack_aot.schedule.decision import Decision

T = TypeVar("T")
SHOWN = 5  # losers in a record, and beside them all that were tried


@dataclass(frozen=True, slots=True)
class Way(Generic[T]):
    """One way: predicted seconds, its place along the axes of the space, what it is, and why it would be taken.

    `built` is the name under which the tool chain may find that it cannot be built well.
    """

    name: str
    seconds: float
    place: tuple[float, ...]
    made: T
    because: str
    built: str = ""


@dataclass(frozen=True, slots=True)
class Offer(Generic[T]):
    """The ways of the kernel with content `key`, the usual one first."""

    kind: str
    subject: str
    key: str
    ways: Sequence[Way[T]]


def on_trial(ways: Sequence[Way[T]], pick: Pick | None) -> str:
    """The name under which the picked way is built; "" without one."""
    return next((way.built for way in ways if pick is not None and way.name == pick.way), "")


def take(offer: Offer[T], pick: Pick | None) -> tuple[T, Decision, Choice]:
    """The picked way, or the usual one where that is not offered; the record of it, and what could be measured."""
    names = {way.name: way for way in offer.ways}
    usual = offer.ways[0]
    chosen = usual if pick is None else names.get(pick.way, usual)
    picked = pick is not None and pick.way == chosen.name
    because = f"{reason_of(pick)}; {chosen.because}" if pick and picked else chosen.because
    tried = tried_of(pick)
    losers = sorted(offer.ways, key=lambda way: (way.name not in tried, way.seconds))
    shown = [way for way in losers if way is not chosen]
    count = max(SHOWN, sum(way.name in tried for way in shown))
    words = tuple(f"{w.name} {_us(w.seconds)}{found_of(w.name, pick)}" for w in shown[:count])
    decision = Decision(offer.kind, offer.subject, chosen.name, because, words)
    choice = Choice(
        offer.key,
        offer.subject,
        (),
        tuple((way.name, way.seconds) for way in offer.ways if isfinite(way.seconds)),
        usual.name,
        chosen.name,
        {way.name: way.place for way in offer.ways},
    )
    return chosen.made, decision, choice


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"
