"""Checks a package against its model: inputs, references, judgement. Not here: each of these.

The reference is onnxruntime, its graph optimisations off. What differs by more than the tolerance
is disputed and judged again by a float64 evaluation of the model's AICF: first with the same
tolerance, then with what rounding errors really do to the outputs at these inputs (measured by
evaluating with random ones), so that neither an error of the reference nor an ill-conditioned model
is called a fault, and no fault passes for either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Array
from unistack_aot.artifact.manifest import UNBOUNDED, Manifest
from unistack_aot.base.errors import BadInput, IRError, UnistackError
from unistack_aot.base.options import DimRequest
from unistack_aot.check import bisect as bisection
from unistack_aot.check.cases import named, sizes_to_try
from unistack_aot.check.conditioning import Conditioning
from unistack_aot.check.excuses import Excuses, compared
from unistack_aot.check.feeds import drawn
from unistack_aot.check.oracles import Runtime, bound, exact
from unistack_aot.check.tolerance import Bound, Rounding, bounds
from unistack_aot.check.verdict import OutputResult, Verdict
from unistack_aot.onnx_in import Imported, import_model
from unistack_aot.onnx_in.dims import axis_names
from unistack_aot.onnx_in.read import Model, read_model
from unistack_aot.runtime.session import Session, load


@dataclass(frozen=True, slots=True)
class Subject:
    """What is judged: the model as AICF and for onnxruntime, the loaded package, how it rounds."""

    imported: Imported
    runtime: Runtime
    session: Session
    rounding: Rounding


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs, what to call them, and whether the user gave them."""

    name: str
    feeds: Mapping[str, Array]
    given: bool = False


def check(
    model: Model,
    package: str | Path,
    device: str = "cpu",
    dims: Mapping[str, DimRequest] | None = None,
    feeds: Mapping[str, object] | None = None,
    seed: int = 0,
    threads: int | None = None,
    bisect: bool = True,
) -> Verdict:
    """Run a package on a device and judge every output against onnxruntime, and float64 where they differ.

    By default on seeded inputs, at the lowest, typical and highest sizes of its dimensions; `dims`
    gives other sizes, `feeds` the inputs themselves: arrays by name, of the declared dtypes and
    shapes. On failure `bisect` finds the first wrong value, for which parts of the model are compiled
    again. The verdict is true if all is within tolerance; `str` of it is a table. Raises BadInput for
    wrong arguments and for a package of another model, BadPackage for a damaged one.
    """
    model = Path(model) if isinstance(model, str) else model
    session = load(package, device, threads)
    subject = Subject(
        import_for(model, session.package.manifest),
        Runtime(model, threads or 2),
        session,
        rounding_of(session.package.manifest),
    )
    cases = _given(feeds) if feeds is not None else _drawn(subject, dims, seed)
    results: list[OutputResult] = []
    remarks = [f"note: {subject.runtime.absent}"] if subject.runtime.absent else []
    wrong: Case | None = None
    for case in cases:
        found, remark = judge_case(subject, case)
        results += found
        remarks += [f"note: {remark}"] if remark else []
        if wrong is None and any(not result.passed for result in found):
            wrong = case
    if not results:
        reasons = "; ".join(remarks).replace("note: ", "")
        raise BadInput(
            "no case could be judged", at=reasons, hint="give inputs that the model accepts"
        )
    culprit = None
    if wrong is not None and bisect:
        names = tuple(r.output for r in results if r.case == wrong.name and not r.passed)
        culprit = bisection.first_wrong(
            subject.imported, wrong.feeds, names, session.variant.target, device, subject.rounding
        )
    shown = subject.imported.name
    return Verdict(
        shown, str(package), session.device, tuple(results), tuple(dict.fromkeys(remarks)), culprit
    )


def import_for(model: Model, manifest: Manifest) -> Imported:
    """The model as AICF with the dimensions that a package was compiled for; BadInput if its
    inputs or outputs have other names than the package's."""
    source = read_model(model)
    _same_signature(source.proto.graph, source.name, manifest)
    declared: dict[str, int | str | tuple[int, ...]] = {
        dim.name: (dim.low, dim.high) for dim in manifest.dims if dim.high < UNBOUNDED
    }
    by_name = {tensor.name: tensor for tensor in manifest.inputs}
    for value in source.proto.graph.input:
        tensor = by_name.get(value.name)
        axes = axis_names(value)
        if tensor is None or len(axes) != len(tensor.shape):
            continue
        for axis, size in zip(axes, tensor.shape, strict=True):
            if axis is not None and size.isdecimal():
                declared[axis] = int(size)
    return import_model(model, declared)


def _same_signature(proto: onnx.GraphProto, name: str, manifest: Manifest) -> None:
    weights = {tensor.name for tensor in proto.initializer}
    inputs = {value.name for value in proto.input} - weights
    outputs = {value.name for value in proto.output}
    theirs = {t.name for t in manifest.inputs}, {t.name for t in manifest.outputs}
    if (inputs, outputs) != theirs:
        raise BadInput(
            f"the package was compiled from another model ({manifest.model})",
            at=name,
            hint="give the model and the package that belong together",
        )


def rounding_of(manifest: Manifest) -> Rounding:
    """How a package computes, from the options it was compiled with."""
    words = [option.partition("=") for option in manifest.options]
    given = {name: value for name, _, value in words}
    direct = given.get("convolution") == "direct"
    return Rounding(given.get("precision", "f32"), "direct" if direct else "fast")


def _given(feeds: Mapping[str, object]) -> list[Case]:
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    return [Case("given inputs", arrays, True)]


def _drawn(subject: Subject, dims: Mapping[str, DimRequest] | None, seed: int) -> list[Case]:
    manifest = subject.session.package.manifest
    return [
        Case(named(sizes), drawn(manifest.inputs, sizes, subject.imported.graph, seed + number))
        for number, sizes in enumerate(sizes_to_try(manifest, dims))
    ]


def judge_case(subject: Subject, case: Case) -> tuple[list[OutputResult], str]:
    """One result per output, or none and the reason why these inputs cannot be judged.

    BadInput for given inputs that the package refuses.
    """
    got = subject.session.run(case.feeds) if case.given else {}
    try:
        graph = bound(subject.imported.graph, case.feeds)
    except IRError as error:  # sizes that each dimension allows need not fit the model
        return [], f"{case.name or 'the inputs'}: not accepted by the model; {error.what}"
    limits = bounds(graph, subject.rounding)
    reference = subject.runtime.run(case.feeds)
    if isinstance(reference, str) and not subject.runtime.absent:
        # both must accept the inputs; a model may forbid sizes that its dimensions allow
        try:
            exact(graph, case.feeds)
        except (UnistackError, ValueError, IndexError):
            return [], f"{case.name or 'the inputs'}: not accepted by the model; {reference}"
    got = got or subject.session.run(case.feeds)
    first: list[OutputResult] = []
    if not isinstance(reference, str):
        first = [
            compared(case.name, name, got[name], reference[name], limits[name])
            for name, _ in graph.outputs
        ]
        if all(result.passed for result in first):
            return first, ""
    remark = reference if isinstance(reference, str) and not subject.runtime.absent else ""
    second = _judged_again(subject, case, graph, got, limits)
    return [
        again if not first or not first[k].passed else first[k] for k, again in enumerate(second)
    ], remark


def _judged_again(
    subject: Subject,
    case: Case,
    graph: Graph,
    got: Mapping[str, Array],
    limits: Mapping[str, Bound],
) -> list[OutputResult]:
    truth = exact(graph, case.feeds)
    excuses = Excuses(Conditioning(subject.rounding, graph, case.feeds))
    return [
        excuses.verdict(case.name, name, got[name], truth[name], limits[name])
        for name, _ in graph.outputs
    ]
