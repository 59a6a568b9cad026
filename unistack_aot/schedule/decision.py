"""Records of choices: what was chosen, what else was tried, which number or property decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from unistack_aot.mcir.program import Launch, Program
from unistack_aot.mcir.text import kernel_names


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice. `subject` names the kernel or value, `tried` the alternatives with their figure.

    `value` is a buffer that the choice did away with, `into` those whose kernels compute it now.
    """

    kind: str
    subject: str
    chosen: str
    because: str
    tried: tuple[str, ...] = ()
    value: str = ""
    into: tuple[str, ...] = ()

    def __str__(self) -> str:
        tried = f"; tried {', '.join(self.tried)}" if self.tried else ""
        return f"{self.kind} {self.subject}: {self.chosen} ({self.because}{tried})"


Record = dict[str, "str | list[str]"]
"""One decision as lock.json holds it."""


def records(decisions: Iterable[Decision], program: Program) -> list[Record]:
    """The decisions with the kernels of a scheduled program that they shaped, in order of decision.

    A kernel is found by a buffer it writes, by what was fused into it, or by the model's nodes that the subject names;
    `kernel` is empty where no kernel is left.
    """
    decisions = tuple(decisions)
    into: dict[str, tuple[str, ...]] = {}
    for decision in decisions:
        if decision.value:
            into[decision.value] = (*into.get(decision.value, ()), *decision.into)
    places = _places(program)
    found: list[Record] = []
    for decision in decisions:
        names = decision.into or (decision.subject, *decision.subject.split(", "))
        kernels = sorted({k for n in _ends(names, into) for k in places.get(n, ())}, key=_number)
        found += [_record(decision, kernel) for kernel in kernels or [""]]
    return found


def _places(program: Program) -> dict[str, list[str]]:
    """Kernel names by what may name them: written buffers, first origins, label."""
    names = kernel_names(program)
    places: dict[str, list[str]] = {}
    for launch in program.launches():
        for key in _keys(launch):
            places.setdefault(key, []).append(names[launch.kernel])
    return places


def _keys(launch: Launch) -> set[str]:
    firsts = {", ".join(launch.origins[:count]) for count in (2, 3)}
    return {*launch.writes(), *firsts, launch.label} - {""}


def _ends(names: tuple[str, ...], into: dict[str, tuple[str, ...]]) -> set[str]:
    """The names, and those of the values that fused values went into."""
    seen: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += into.get(name, ())
    return seen - into.keys()


def _number(kernel: str) -> int:
    return int(kernel[1:])


def _record(decision: Decision, kernel: str) -> Record:
    return {
        "kernel": kernel,
        "what": decision.kind,
        "subject": decision.subject,
        "chosen": decision.chosen,
        "because": decision.because,
        "tried": list(decision.tried),
    }


def microseconds(seconds: float) -> str:
    """Seconds as "3.1 us"."""
    return f"{seconds * 1e6:.3g} us"
