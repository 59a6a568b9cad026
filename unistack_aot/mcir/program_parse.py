"""Programs from text, as text.py prints them."""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.symbolic import Dim
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.nodes import Kernel
from unistack_aot.mcir.parse import StatementReader
from unistack_aot.mcir.program import (
    Buffer,
    Carried,
    HostCopy,
    HostIf,
    HostLoop,
    HostRefuse,
    Kind,
    Launch,
    Program,
    Sliced,
    Step,
)

_KINDS = {kind.value: kind for kind in Kind}
_UNREAD = Kernel((), ())


def parse_program(source: str) -> Program:
    """The program that a text stands for; BadInput shows the line that cannot be read."""
    return ProgramReader(source).program()


class ProgramReader(StatementReader):
    """A cursor that reads programs; kernels follow the steps that launch them."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.launched: dict[str, int] = {}

    def program(self) -> Program:
        """`program name { buffers steps }` and the kernels."""
        self.expect("program")
        name = self.name()
        self.expect("{")
        buffers: list[Buffer] = []
        while self.token.word in _KINDS and self.tokens[self.at + 2].word == ":":
            buffers.append(self.buffer())
        steps = self.steps()
        kernels: dict[str, Kernel] = {}
        while self.token.kind != "end":
            key, kernel = self.kernel()
            kernels[key] = kernel
        missing = sorted(self.launched.keys() - kernels.keys())
        if missing:
            self.at = self.launched[missing[0]]
            self.fail(f"there is no kernel {missing[0]}")
        bound = Program(name, tuple(buffers), steps)
        return bound.map_launches(lambda launch: _resolved(launch, kernels))

    def buffer(self) -> Buffer:
        """`kind name: dtype[shape] layout alias other at offset = "digest"`."""
        kind = self.one_of(_KINDS, "kind of buffer")
        name = self.name()
        self.expect(":")
        dtype, shape = self.dtype(), self.extents()
        layout: Layout = self.layout()
        alias = self.name() if self.take("alias") else None
        offset: Dim = self.dim() if self.take("at") else 0
        constant = self.string() if self.take("=") else None
        return Buffer(name, dtype, shape, kind, layout, constant, alias, offset)

    def steps(self) -> tuple[Step, ...]:
        """Steps up to the closing bracket, which is taken."""
        found: list[Step] = []
        while not self.take("}"):
            found.append(self.step())
        return tuple(found)

    def step(self) -> Step:
        """One step."""
        spoken = self.tokens[self.at + 1].word != "("
        match self.token.word if spoken else "":
            case "if":
                return self.branch()
            case "loop":
                return self.host_loop()
            case "copy":
                self.at += 1
                return HostCopy(*self.pair())
            case "refuse":
                self.at += 1
                target = self.name()
                self.expect(":")
                return HostRefuse(target, self.string())
            case _:
                return self.launch()

    def pair(self) -> tuple[str, str]:
        """`name -> name`."""
        first = self.name()
        self.expect("->")
        return first, self.name()

    def launch(self) -> Launch:
        """`kernel(inputs) -> results as "label" from "origin", ...`."""
        at, name = self.at, self.name()
        self.launched.setdefault(name, at)
        args: list[str] = []
        self.expect("(")
        while not self.take(")"):
            args.append(self.name())
            self.separator(")")
        self.expect("->")
        if self.token.kind in ("word", "string") and not self._ends_results():
            args.append(self.name())
            while self.take(","):
                args.append(self.name())
        label = self.string() if self.take("as") else ""
        # kernels follow the steps: until they are read, the name stands before the arguments
        return Launch(_UNREAD, (name, *args), self.origins(), label)

    def _ends_results(self) -> bool:
        following = self.tokens[self.at + 1].kind
        return (self.sees("as") or self.sees("from")) and following == "string"

    def origins(self) -> tuple[str, ...]:
        """`from "name", ...`, if it is there."""
        if not self.take("from"):
            return ()
        found = [self.string()]
        while self.take(","):
            found.append(self.string())
        return tuple(found)

    def branch(self) -> HostIf:
        """`if condition { steps } else { steps }`."""
        self.expect("if")
        condition, origins = self.name(), self.origins()
        self.expect("{")
        then = self.steps()
        otherwise: tuple[Step, ...] = ()
        if self.sees("else") and self.tokens[self.at + 1].word == "{":
            self.at += 2
            otherwise = self.steps()
        return HostIf(condition, then, otherwise, origins)

    def host_loop(self) -> HostLoop:
        """`loop trips=... while=... { carried, scanned and stacked values, steps }`."""
        self.expect("loop")
        trips: Dim | str | None = None
        if self.take("trips"):
            self.expect("=")
            trips = self.extents()[0] if self.sees("[") else self.name()
        condition, following = self.fact("while"), self.fact("next")
        iteration = self.fact("iteration")
        origins = self.origins()
        self.expect("{")
        carried: list[Carried] = []
        while self.listed("carry"):
            initial, entry = self.pair()
            self.expect(",")
            exit_, final = self.pair()
            carried.append(Carried(initial, entry, exit_, final))
        scanned: list[Sliced] = []
        while self.listed("scan"):
            whole, part = self.pair()
            scanned.append(Sliced(whole, part, self.take("reverse")))
        stacked: list[Sliced] = []
        while self.listed("stack"):
            part, whole = self.pair()
            stacked.append(Sliced(whole, part, self.take("reverse")))
        body = self.steps()
        return HostLoop(
            trips,
            condition,
            following,
            iteration,
            tuple(carried),
            tuple(scanned),
            tuple(stacked),
            body,
            origins,
        )

    def fact(self, key: str) -> str | None:
        """`key=name`, if it is there."""
        if not self.take(key):
            return None
        self.expect("=")
        return self.name()

    def listed(self, word: str) -> bool:
        """Whether one more line of a loop's values follows."""
        found = self.sees(word) and self.tokens[self.at + 1].kind in ("word", "string")
        self.at += found
        return found


def _resolved(launch: Launch, kernels: dict[str, Kernel]) -> Launch:
    name, *args = launch.args
    return replace(launch, kernel=kernels[name], args=tuple(args))
