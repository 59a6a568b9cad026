"""Checks a package against its model: inputs, references, judgement. Not here: each of these.

The reference is onnxruntime, its graph optimisations off. What differs by more than the tolerance
is disputed and judged again by a float64 evaluation of the model's AICF: first with the same
tolerance, then with what rounding errors really do to the outputs at these inputs (measured by
evaluating with random ones), so that neither an error of the reference nor an ill-conditioned model
is called a fault, and no fault passes for either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from unistack_aot.check.compare import difference, differing
from unistack_aot.check.conditioning import (
    DISTURBED_MARGIN,
    DISTURBED_RUNS,
    TIE_RUNS,
    Conditioning,
)
from unistack_aot.check.feeds import drawn
from unistack_aot.check.oracles import Runtime, bound, exact
from unistack_aot.check.quantum import allowance, moved, nearest, quantum_of, steps
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
            _compared(case.name, name, got[name], reference[name], limits[name])
            for name, _ in graph.outputs
        ]
        if all(result.passed for result in first):
            return first, ""
    remark = reference if isinstance(reference, str) and not subject.runtime.absent else ""
    second = _judged_again(subject, case, graph, got, limits)
    return [
        again if not first or not first[k].passed else first[k] for k, again in enumerate(second)
    ], remark


def _compared(case: str, name: str, got: Array, want: Array, limit: Bound) -> OutputResult:
    found = difference(got, want)
    return OutputResult(
        case,
        name,
        got.dtype.name,
        found.error,
        limit.ulps,
        "onnxruntime",
        found.error <= limit.ulps,
        found.remark,
    )


def _judged_again(
    subject: Subject,
    case: Case,
    graph: Graph,
    got: Mapping[str, Array],
    limits: Mapping[str, Bound],
) -> list[OutputResult]:
    truth = exact(graph, case.feeds)
    results = [
        replace(_compared(case.name, name, got[name], truth[name], limits[name]), judge="float64")
        for name, _ in graph.outputs
    ]
    if all(result.passed for result in results):
        return results
    judges = Excuses(Conditioning(subject.rounding, graph, case.feeds))
    return [
        result if result.passed else judges.judged(result, got[result.output], truth[result.output])
        for result in results
    ]


@dataclass(frozen=True, slots=True)
class Excuses:
    """What rounding errors may do to the outputs of a bound graph at some inputs."""

    conditioning: Conditioning

    def judged(self, result: OutputResult, got: Array, truth: Array) -> OutputResult:
        """The result with the tolerance that the model's conditioning calls for."""
        if got.shape != truth.shape:
            return result
        quantum = quantum_of(self.conditioning.graph, result.output)
        if quantum is not None:
            return self._quantised(result, got, truth, quantum)
        return (self._exact if got.dtype.kind in "iub" else self._real)(result, got, truth)

    def _quantised(
        self, result: OutputResult, got: Array, truth: Array, quantum: float
    ) -> OutputResult:
        """Elements near a tie may be off by as many quanta as rounding errors move them."""
        mine, exact_steps = steps(got, quantum), steps(truth, quantum)
        if mine is None or exact_steps is None:
            return replace(result, remark=f"not a multiple of its quantum {quantum:.3g}")
        found = moved(mine, exact_steps)
        runs = self.conditioning.runs(result.output, DISTURBED_RUNS, 1.0, truth)
        limit = allowance((moved(nearest(run, quantum), exact_steps) for run in runs), truth.size)
        far = "one quantum" if found.furthest == 1 else f"{found.furthest} quanta"
        most = "one quantum" if limit.furthest == 1 else f"{limit.furthest} quanta"
        remark = (
            f"{found.count} of {truth.size} elements off by {far} of {quantum:.3g}; "
            f"rounding moves {limit.count} by {most}"
        )
        return replace(
            result,
            error=float(found.count),
            allowed=float(limit.count),
            passed=found.count <= limit.count and found.furthest <= limit.furthest,
            remark=remark,
        )

    def _exact(self, result: OutputResult, got: Array, truth: Array) -> OutputResult:
        """Elements that rounding errors can flip are near-ties; all others must be right."""
        wrong = differing(got, truth)
        ties = np.zeros_like(wrong)
        for run in self.conditioning.runs(result.output, TIE_RUNS, DISTURBED_MARGIN, truth):
            ties |= differing(run, truth)
            if not np.any(wrong & ~ties):
                remark = f"near-ties: {int(np.count_nonzero(wrong))}"
                return replace(result, error=0.0, passed=True, remark=remark)
        return replace(result, error=float(np.count_nonzero(wrong & ~ties)))

    def _real(self, result: OutputResult, got: Array, truth: Array) -> OutputResult:
        moves = self.conditioning.moves(result.output, truth, got.dtype)
        limit = max(result.allowed, moves.ulps)
        error = difference(got, truth, moves.scale).error
        passed = error <= limit
        remark = "ill-conditioned here" if passed else result.remark
        return replace(result, error=error, allowed=limit, passed=passed, remark=remark)
