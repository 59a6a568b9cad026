"""Random models compiled and run: many packed into one package, memory poisoned before each run.

Not here: the stages evaluated in numpy (fuzzing.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

import unistack_aot as ua
from models.fuzzing import Fault, Judge, Skip, Subject, reduced, reference_outputs
from models.random_blocks import VOCABULARY
from models.random_graph import Made, Unfit, generate, packed
from unistack_aot.base.errors import UnistackError
from unistack_aot.check.oracles import bound

PACK_OPSET = 20


@dataclass(frozen=True, slots=True)
class Pack:
    """Several models in one; a part's values start with its prefix."""

    whole: Made
    parts: Mapping[str, Made]

    def part(self, output: str) -> Made:
        """The model that an output belongs to."""
        return self.parts[output.partition("_")[0]]

    def halves(self) -> tuple[Pack, Pack]:
        """Two packs of half the parts each."""
        items = list(self.parts.items())
        middle = len(items) // 2
        return pack_of(dict(items[:middle])), pack_of(dict(items[middle:]))


def pack_of(parts: Mapping[str, Made]) -> Pack:
    """Models by prefix as one."""
    return Pack(packed(list(parts.values())), parts)


def packs(first: int, size: int, special: bool = False) -> Iterator[Pack]:
    """Models packed `size` at a time, from seeds counted from `first`."""
    seed = first
    while True:
        parts: dict[str, Made] = {}
        while len(parts) < size:
            part = part_of(seed, special)
            if part is not None:
                parts[f"g{seed}"] = part
            seed += 1
        yield pack_of(parts)


def part_of(seed: int, special: bool = False) -> Made | None:
    """A model that onnxruntime runs and that imports; None where the seed gives none."""
    try:
        made = generate(seed, VOCABULARY, special=special, prefix=f"g{seed}_", opset=PACK_OPSET)
        for feeds in made.feeds:
            reference_outputs(made.model, feeds)
            Subject(made.model, made.feeds).evaluated("import", feeds)
    except (Skip, Unfit, UnistackError, onnx.checker.ValidationError):
        return None
    return made


def faults_of(pack: Pack, folder: Path, target: str) -> dict[str, Fault]:
    """The first fault of each part of a pack by its prefix.

    A pack that does not compile or run is taken apart: the part that stops it is at fault.
    """
    try:
        found = run_compiled(pack.whole, folder, target)
    except Exception as error:  # any crash of the compiler is a fault
        parts: dict[str, Fault] = {}
        for half in pack.halves() if len(pack.parts) > 1 else ():
            parts |= faults_of(half, folder, target)
        reason = Fault(target, f"{type(error).__name__}: {error}")
        return parts or {next(iter(pack.parts)): reason}  # together only: the first one answers
    faults: dict[str, Fault] = {}
    for output, fault in found.items():
        faults.setdefault(output.partition("_")[0], fault)
    return faults


def run_compiled(made: Made, folder: Path, target: str = "cpu") -> dict[str, Fault]:
    """What is wrong with a model compiled and run with poisoned memory, by output.

    The first inputs are run again at the end: nothing of the other runs may remain.
    """
    package = folder / f"pack_{made.seed}.pkg"
    ua.compile_model(made.model, package, targets=(target,))
    device = target.partition(":")[0]
    session = ua.load(package, device=device, poison=device == "cpu")
    subject = Subject(made.model, made.feeds)
    faults: dict[str, Fault] = {}
    for binding, feeds in enumerate((*made.feeds, made.feeds[0])):
        references = (subject.evaluated("import", feeds), reference_outputs(made.model, feeds))
        judge = Judge(bound(subject.imported.graph, feeds), feeds, references)
        for name, reason in wrong_outputs(judge, session.run(feeds)).items():
            faults.setdefault(name, Fault(target, f"{name}: {reason}", binding))
    return faults


def wrong_outputs(judge: Judge, got: Mapping[str, Any]) -> dict[str, str]:
    """Why each wrong output is wrong."""
    found: dict[str, str] = {}
    for name, node in judge.graph.outputs:
        only = replace(judge, graph=replace(judge.graph, outputs=((name, node),)))
        reason = only.wrong(got)
        if reason:
            found[name] = reason
    return found


def smallest(part: Made, folder: Path, target: str, attempts: int = 12) -> onnx.ModelProto:
    """A smaller model that also fails when it is compiled; each attempt is a compilation."""
    size = [len(part.model.graph.node) + len(part.model.graph.output)]
    left = [attempts]

    def fails(model: onnx.ModelProto) -> bool:
        count = len(model.graph.node) + len(model.graph.output)
        if count >= size[0] or not model.graph.node or left[0] <= 0:
            return False
        left[0] -= 1
        names = {i.name for i in model.graph.input}
        feeds = tuple({k: v for k, v in f.items() if k in names} for f in part.feeds)
        try:
            onnx.checker.check_model(model)
            found = run_compiled(Made(part.seed, model, feeds), folder, target)
        except Exception:  # an unusable reduction
            return False
        if found:
            size[0] = count
        return bool(found)

    return reduced(part.model, fails)
