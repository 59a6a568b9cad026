"""A program: buffers, kernel launches and host control steps in order. Not here: what happens inside a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import Dim
from unistack_aot.mcir.layout import PLAIN, Layout
from unistack_aot.mcir.nodes import Kernel


class Kind(Enum):
    """Who owns a buffer's memory: the caller, the package, or the arena."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    ARENA = "arena"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named piece of far memory. `constant` is the digest of its content; `alias_of` shares another one's memory.

    `offset` is in elements of this buffer's dtype from the start of `alias_of`.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    kind: Kind = Kind.ARENA
    layout: Layout = PLAIN
    constant: str | None = None
    alias_of: str | None = None
    offset: Dim = 0

    @property
    def elements(self) -> Dim:
        """Physical number of elements, padding included."""
        return self.layout.elements(self.shape)


@dataclass(frozen=True, slots=True)
class Launch:
    """Run `kernel` with its parameters bound, in order, to the buffers `args`."""

    kernel: Kernel
    args: tuple[str, ...]
    origins: tuple[str, ...] = ()
    label: str = ""

    def reads(self) -> tuple[str, ...]:
        """Buffers read."""
        named = zip(self.kernel.params, self.args, strict=True)
        return tuple(arg for param, arg in named if param.access.value != "out")

    def writes(self) -> tuple[str, ...]:
        """Buffers written."""
        named = zip(self.kernel.params, self.args, strict=True)
        return tuple(arg for param, arg in named if param.access.value != "in")


@dataclass(frozen=True, slots=True)
class HostIf:
    """Run one of two step lists by the bool in buffer `condition`; both fill the same result buffers."""

    condition: str
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Carried:
    """A loop-carried value: `initial` before the first iteration, `entry` read and `exit` written by the body.

    After each iteration `exit` moves to `entry`; `final` receives the last value.
    """

    initial: str
    entry: str
    exit: str
    final: str


@dataclass(frozen=True, slots=True)
class Sliced:
    """A per-iteration slice of `stacked` along its axis 0 (scan input if read, scan output if written by the body)."""

    stacked: str
    slice: str
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class HostLoop:
    """Run `body` up to `trips` times while `condition` (written by the body) holds.

    `trips` is a Dim, or the name of an i64 buffer; `iteration` names the i64 buffer that holds the current number.
    """

    trips: Dim | str | None
    condition: str | None
    next_condition: str | None
    iteration: str | None
    carried: tuple[Carried, ...]
    scanned: tuple[Sliced, ...]
    stacked: tuple[Sliced, ...]
    body: tuple[Step, ...]
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostCopy:
    """Copy a whole buffer into another of the same type and layout."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class HostRefuse:
    """End the run with an error: what `target` should hold has no value. `reason` is what the user reads."""

    target: str
    reason: str


Step: TypeAlias = Launch | HostIf | HostLoop | HostCopy | HostRefuse


@dataclass(frozen=True, slots=True)
class Program:
    """Everything one variant executes, and the buffers it uses, by name in order of definition."""

    name: str
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]

    def buffer(self, name: str) -> Buffer:
        """The buffer called `name`."""
        return self.by_name()[name]

    def by_name(self) -> dict[str, Buffer]:
        """All buffers by name."""
        return {buffer.name: buffer for buffer in self.buffers}

    def launches(self) -> Iterator[Launch]:
        """All launches in program order, those inside regions included."""
        return _launches(self.steps)

    def map_launches(self, change: Callable[[Launch], Launch]) -> Program:
        """The program with every launch changed, those inside regions included."""
        return replace(self, steps=_mapped(self.steps, change))

    def with_steps(self, steps: tuple[Step, ...]) -> Program:
        """The same buffers under other steps."""
        return replace(self, steps=steps)


def _launches(steps: tuple[Step, ...]) -> Iterator[Launch]:
    for step in steps:
        match step:
            case Launch():
                yield step
            case HostIf():
                yield from _launches(step.then)
                yield from _launches(step.otherwise)
            case HostLoop():
                yield from _launches(step.body)
            case HostCopy() | HostRefuse():
                pass


def _mapped(steps: tuple[Step, ...], change: Callable[[Launch], Launch]) -> tuple[Step, ...]:
    result: list[Step] = []
    for step in steps:
        match step:
            case Launch():
                result.append(change(step))
            case HostIf():
                then, otherwise = _mapped(step.then, change), _mapped(step.otherwise, change)
                result.append(replace(step, then=then, otherwise=otherwise))
            case HostLoop():
                result.append(replace(step, body=_mapped(step.body, change)))
            case HostCopy() | HostRefuse():
                result.append(step)
    return tuple(result)
