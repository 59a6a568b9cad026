"""Random models compiled and run: many packed into one package, memory poisoned before each run.

Not here: the stages evaluated in numpy (fuzzing.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import onnx

import unistack_aot as ua
from models.fuzzing import Fault, Judge, Skip, Subject, reference_outputs
from models.random_blocks import VOCABULARY
from models.random_graph import Made, Unfit, generate, packed
from unistack_aot.base.errors import UnistackError
from unistack_aot.check.oracles import bound

PACK_OPSET = 20


def packs(first: int, size: int, special: bool = False) -> Iterator[Made]:
    """Models packed `size` at a time, from seeds counted from `first`; each part can be judged."""
    seed = first
    while True:
        parts: list[Made] = []
        while len(parts) < size:
            seed += 1
            part = part_of(seed, special)
            if part is not None:
                parts.append(part)
        yield packed(parts)


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


def run_compiled(made: Made, folder: Path, target: str = "cpu", device: str = "cpu") -> list[Fault]:
    """What is wrong with a model compiled and run with poisoned memory: one fault per output."""
    package = folder / f"pack_{made.seed}.pkg"
    ua.compile_model(made.model, package, targets=(target,))
    session = ua.load(package, device=device, poison=device == "cpu")
    subject = Subject(made.model, made.feeds)
    faults: dict[str, Fault] = {}
    for binding, feeds in enumerate((*made.feeds, made.feeds[0])):
        judge = Judge(
            bound(subject.imported.graph, feeds),
            feeds,
            (subject.evaluated("import", feeds), reference_outputs(made.model, feeds)),
        )
        got = session.run(feeds)
        for name, reason in wrong_outputs(judge, got).items():
            faults.setdefault(name, Fault(target, reason, binding))
    return list(faults.values())


def wrong_outputs(judge: Judge, got: Mapping[str, object]) -> dict[str, str]:
    """Why each wrong output is wrong."""
    found: dict[str, str] = {}
    for name, node in judge.graph.outputs:
        only = replace(judge.graph, outputs=((name, node),))
        reason = Judge(only, judge.feeds, judge.references).wrong(got)  # type: ignore[arg-type]
        if reason:
            found[name] = reason
    return found
