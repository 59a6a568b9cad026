"""What is known of the ways of one kernel: a choice that scheduling made, a pick that measurements make.

Not here: which ways there are (candidates.py, offers.py), how they are measured (tune/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from unistack_aot.mcir.nodes import Kernel
from unistack_aot.mcir.text import print_kernel
from unistack_aot.schedule.decision import microseconds


@dataclass(frozen=True, slots=True)
class Pick:
    """A way that measurements chose, with the seconds of every measured way; or one `on_trial`.

    `refused` are the ways that could not be built well or computed other values, and why.
    """

    way: str
    measured: Mapping[str, float] = field(default_factory=dict[str, float])
    on_trial: bool = False
    refused: Mapping[str, str] = field(default_factory=dict[str, str])


Picks = Mapping[str, Pick]


@dataclass(frozen=True, slots=True)
class Choice:
    """One kernel's ways by predicted time, the usual one and the chosen one.

    `key` names the kernel by its content; `writes` are, for every place where the program has it, the buffers that
    its launches there write. `places` says where every way lies along the axes of its space, in steps that halve or
    double a size; `refused` are ways that the tool chain could not build well, and its words.
    """

    key: str
    subject: str
    writes: tuple[tuple[str, ...], ...]
    ways: tuple[tuple[str, float], ...]
    usual: str
    chosen: str
    places: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])


def content_key(kernel: Kernel, *words: str) -> str:
    """A name for a kernel before any choice: SHA-256 of its text and what else its ways depend on."""
    return sha256("\0".join((print_kernel(kernel), *words)).encode()).hexdigest()


def tried_of(pick: Pick | None) -> frozenset[str]:
    """The ways that were measured or refused."""
    return frozenset() if pick is None else frozenset((*pick.measured, *pick.refused))


def found_of(name: str, pick: Pick | None) -> str:
    """What came of a way on trial, to follow its prediction in a record: ", measured 3.1 us"."""
    if pick is not None and name in pick.refused:
        return f", refused: {pick.refused[name]}"
    seconds = pick.measured.get(name) if pick is not None else None
    return "" if seconds is None else f", measured {microseconds(seconds)}"


def reason_of(pick: Pick) -> str:
    """Why a pick's way is taken."""
    if pick.on_trial:
        return "on trial"
    seconds = pick.measured.get(pick.way)
    shown = "" if seconds is None else f", {microseconds(seconds)}"
    return f"measured: the fastest of {len(pick.measured)}{shown}"
