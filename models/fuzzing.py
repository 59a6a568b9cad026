"""Differential judgement of random models, stage by stage, and their reduction to a small failing one.

Stages: the imported graph against onnxruntime, then the rules, the naive program, the fused one and
the one a target decided, each evaluated in numpy. Not here: random models (random_graph.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from models.random_graph import Made
from unistack_aot.aicf.bind import dims_of
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.op import Input
from unistack_aot.base.errors import UnistackError, Unsupported
from unistack_aot.check.compare import difference
from unistack_aot.check.conditioning import Conditioning
from unistack_aot.check.excuses import Excuses
from unistack_aot.check.oracles import Runtime, bound, exact
from unistack_aot.check.tolerance import Rounding, bounds
from unistack_aot.check.verdict import OutputResult
from unistack_aot.lower import lower_graph
from unistack_aot.mcir.program import Kind, Program
from unistack_aot.mcir.run import run_program
from unistack_aot.onnx_in import Imported, import_model
from unistack_aot.rules import RuleReport, apply_rules
from unistack_aot.schedule.prepare import prepare
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import Request

Array: TypeAlias = NDArray[Any]
Feeds: TypeAlias = Mapping[str, Array]
Outputs: TypeAlias = Mapping[str, Array]
SLACK = 4.0  # times the derived tolerance: thousands of models meet its tail
FOREIGN_SLACK = 200.0  # the same for another runtime, some of whose kernels are less exact
STAGES = ("import", "rules", "lower", "prepare", "cpu")


@dataclass(frozen=True, slots=True)
class Fault:
    """The first stage at which a model goes wrong, with which inputs, and how."""

    stage: str
    reason: str
    binding: int = 0

    def __str__(self) -> str:
        return f"{self.stage}: {self.reason} (inputs {self.binding})"


class Skip(Exception):
    """The model cannot be judged: no reference accepts it, or it is refused with a reason."""


@dataclass(frozen=True)
class Subject:
    """A model with its inputs, and what each stage makes of it."""

    model: onnx.ModelProto
    feeds: tuple[Feeds, ...]
    target: str = "cpu"

    @cached_property
    def imported(self) -> Imported:
        """The model as AICF."""
        return import_model(self.model)

    @cached_property
    def ruled(self) -> Graph:
        """After the rules."""
        return self.ruling[0]

    @cached_property
    def ruling(self) -> tuple[Graph, RuleReport]:
        """The graph after the rules, and what they did."""
        return apply_rules(self.imported.graph, self.imported.origins)

    @property
    def reordered(self) -> bool:
        """Whether products are taken in another order, so that infinities may meet elsewhere (docs/aicf.md)."""
        return "cheapest-order" in self.ruling[1].fired

    @cached_property
    def lowered(self) -> tuple[Program, dict[str, Array]]:
        """The naive program."""
        return lower_graph(self.ruled, self.imported.origins)

    @cached_property
    def prepared(self) -> Program:
        """The fused program."""
        return prepare(*self.lowered)[0]

    @cached_property
    def decided(self) -> tuple[Program, Mapping[str, Array]]:
        """The program as the target runs it."""
        target, asked = split_name(self.target)
        level = target.levels(asked)[0]
        ranges = dict(self.imported.ranges.items())
        request = Request(f"{target.name}:{level}", level, "f32", ranges)
        done = target.schedule(*self.lowered, request)
        return done.program, done.constants

    def dims(self, feeds: Feeds) -> dict[str, int]:
        """The value of every symbolic dimension."""
        return dims_of(self.imported.graph, {name: a.shape for name, a in feeds.items()})

    def evaluated(self, stage: str, feeds: Feeds) -> Outputs:
        """The outputs by name at a stage."""
        match stage:
            case "import":
                return evaluate_graph(self.imported.graph, feeds)
            case "rules":
                return evaluate_graph(self.ruled, feeds)
            case "lower":
                return self.interpreted(*self.lowered, feeds)
            case "prepare":
                return self.interpreted(self.prepared, self.lowered[1], feeds)
            case _:
                return self.interpreted(*self.decided, feeds)

    def interpreted(
        self, program: Program, constants: Mapping[str, Array], feeds: Feeds
    ) -> Outputs:
        """A program in numpy; its buffers are named by position."""
        inputs = [b.name for b in program.buffers if b.kind is Kind.INPUT]
        labels = [n.op.label for n in self.ruled.inputs if isinstance(n.op, Input)]
        given = {b: feeds[label] for b, label in zip(inputs, labels, strict=True)}
        found = run_program(program, given, constants, self.dims(feeds))
        names = [name for name, _ in self.ruled.outputs]
        return dict(zip(names, found.values(), strict=True))


@dataclass(frozen=True)
class Judge:
    """What is right for one model and one set of inputs, and how far from it a result may be."""

    graph: Graph
    feeds: Feeds
    references: tuple[Outputs, ...]

    @cached_property
    def exact(self) -> Outputs:
        """The float64 evaluation of the imported graph."""
        with np.errstate(all="ignore"):
            return exact(self.graph, self.feeds)

    @cached_property
    def limits(self) -> Mapping[str, Any]:
        """The tolerance of every output."""
        return bounds(self.graph, Rounding())

    slack: float = SLACK

    def wrong(self, got: Outputs) -> str:
        """Why a result is no possible one; empty if it is."""
        for name, _ in self.graph.outputs:
            if name not in got:
                return f"{name} is missing"
            reasons = [
                self.differs(name, got[name], want[name]) for want in (*self.references, self.exact)
            ]
            if all(reasons) and not self.excused(name, got[name]):
                return f"{name}: {reasons[-1]}"
        return ""

    def differs(self, name: str, got: Array, want: Array) -> str:
        """How one output differs from a reference."""
        found = difference(got, want)
        allowed = self.limits[name].ulps * self.slack
        if found.error <= allowed:
            return ""
        if found.remark:
            return found.remark
        return (
            f"{found.error:.3g} of {allowed:.3g} allowed at {found.at}: "
            f"{got[found.at]} instead of {want[found.at]}"
        )

    def excused(self, name: str, got: Array) -> bool:
        """Whether rounding errors anywhere in the graph may lead to this result."""
        judge = Excuses(Conditioning(Rounding(), self.graph, self.feeds))
        limit = self.limits[name].ulps * self.slack
        result = OutputResult("", name, got.dtype.name, np.inf, limit, "float64", False)
        with np.errstate(all="ignore"):
            return judge.judged(result, got, self.exact[name]).passed


def reference_outputs(model: onnx.ModelProto, feeds: Feeds) -> Outputs:
    """What onnxruntime computes, graph optimisations off; Skip if it does not."""
    found = Runtime(model, 1).run(feeds)
    if isinstance(found, str):
        raise Skip(f"onnxruntime: {found}")
    return found


def optimised_outputs(model: onnx.ModelProto, feeds: Feeds) -> Outputs | None:
    """A second opinion: onnxruntime with its graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [o.name for o in session.get_outputs()]
        wanted = {v.name for v in session.get_inputs()}
        found = session.run(names, {k: v for k, v in feeds.items() if k in wanted})
    except Exception:  # its exceptions have no common base but this
        return None
    return dict(zip(names, map(np.asarray, found), strict=True))


def examine(
    model: onnx.ModelProto,
    feeds: tuple[Feeds, ...],
    target: str = "cpu",
    stages: tuple[str, ...] = STAGES,
    external: bool = True,
) -> Fault | None:
    """The first fault of a model; None if every stage is right. Skip if it cannot be judged.

    Without `external`, the imported graph itself is the reference (NaN and infinite inputs, on which
    runtimes differ).
    """
    subject = Subject(model, feeds, target)
    if not external and subject.reordered:
        raise Skip("its products are taken in another order")
    wants = [reference_outputs(model, f) for f in feeds] if external else [{} for _ in feeds]
    judges: list[Judge] = []
    for binding, (given, want) in enumerate(zip(feeds, wants, strict=True)):
        fault, judge = _imported(subject, given, want, external)
        if fault:
            return Fault("import", fault, binding)
        judges.append(judge)
    last = [_at_stage(subject, stages[-1], judge) for judge in judges]
    if not any(last):  # the earlier stages are looked at only to say where it went wrong
        return None
    for stage in stages[1:]:
        for binding, judge in enumerate(judges):
            fault = _at_stage(subject, stage, judge)
            if fault:
                return Fault(stage, fault, binding)
    return None


def _imported(subject: Subject, given: Feeds, want: Outputs, external: bool) -> tuple[str, Judge]:
    try:
        narrow = subject.evaluated("import", given)
    except Unsupported as refusal:
        raise Skip(f"refused: {refusal.what}") from refusal
    except UnistackError as refusal:
        raise Skip(f"refused (no gap): {refusal}") from refusal
    judge = Judge(bound(subject.imported.graph, given), given, (narrow, want))
    if not external:
        return "", Judge(judge.graph, given, (narrow,))
    foreign = Judge(judge.graph, given, (narrow,), FOREIGN_SLACK)
    reason = foreign.wrong(want)
    if reason:
        second = optimised_outputs(subject.model, given)
        if second is not None and not foreign.wrong(second):
            reason = ""
    return reason, judge


def _at_stage(subject: Subject, stage: str, judge: Judge) -> str:
    try:
        got = subject.evaluated(stage, judge.feeds)
    except Unsupported as refusal:
        raise Skip(f"refused: {refusal.what}") from refusal
    except Exception as error:  # any crash of the compiler is a fault
        return f"{type(error).__name__}: {error}"
    return judge.wrong(got)


# --- reduction --------------------------------------------------------------------------------------


def reduced(
    made_model: onnx.ModelProto, fails: Callable[[onnx.ModelProto], bool]
) -> onnx.ModelProto:
    """A model that still fails, with as few nodes and outputs as leaving out gives."""
    best = made_model
    shrinking = True
    while shrinking:
        shrinking = False
        for smaller in smaller_models(best):
            if fails(smaller):
                best, shrinking = smaller, True
                break
    return best


def smaller_models(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Models with one output only, with one node's result as the output, or with a value as an input."""
    names = [o.name for o in model.graph.output]
    if len(names) > 1:
        for name in names:
            yield cut(model, [name])
        for name in names:
            yield cut(model, [n for n in names if n != name])
    for node in reversed(model.graph.node):
        for name in node.output:
            if name and name not in names:
                yield cut(model, [name])
    for node in model.graph.node:
        yield bypassed(model, node)


def typed(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """The type of every value that inference finds."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    return {v.name: v for v in (*inferred.input, *inferred.value_info, *inferred.output)}


def cut(model: onnx.ModelProto, outputs: list[str]) -> onnx.ModelProto:
    """The part of a model that some values need, as its only outputs."""
    types = typed(model)
    fresh = onnx.ModelProto()
    fresh.CopyFrom(model)
    graph = fresh.graph
    needed, kept = set(outputs), list[onnx.NodeProto]()
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input) | names_inside(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    del graph.output[:]
    graph.output.extend(types[n] for n in outputs if n in types)
    inputs = [v for v in graph.input if v.name in needed]
    held = [v for v in graph.initializer if v.name in needed]
    del graph.input[:], graph.initializer[:]
    graph.input.extend(inputs)
    graph.initializer.extend(held)
    return fresh


def names_inside(node: onnx.NodeProto) -> set[str]:
    """Values that the regions of a node read."""
    found: set[str] = set()
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                found |= set(inner.input) | names_inside(inner)
            found |= {o.name for o in attribute.g.output}
    return found


def bypassed(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.ModelProto:
    """The model with a node left out: its users read one of its operands of the same type."""
    types = typed(model)
    fresh = onnx.ModelProto()
    fresh.CopyFrom(model)
    kinds = {t.name: t for t in model.graph.initializer}
    for source in node.input:
        alike = source in types and node.output[0] in types
        if not alike or source in kinds:
            continue
        if types[source].type != types[node.output[0]].type:
            continue
        nodes = [n for n in fresh.graph.node if n.name != node.name]
        for other in nodes:
            for k, name in enumerate(other.input):
                if name == node.output[0]:
                    other.input[k] = source
        if node.output[0] in {o.name for o in fresh.graph.output}:
            continue
        del fresh.graph.node[:]
        fresh.graph.node.extend(nodes)
        return cut(fresh, [o.name for o in fresh.graph.output])
    return model


def minimal(
    made: Made, fault: Fault, external: bool = True, target: str = "cpu"
) -> onnx.ModelProto:
    """The smallest model found that fails at the same stage."""
    size = [len(made.model.graph.node) + len(made.model.graph.output)]

    def fails(model: onnx.ModelProto) -> bool:
        count = len(model.graph.node) + len(model.graph.output)
        if count >= size[0] or not model.graph.node:
            return False
        names = {i.name for i in model.graph.input}
        feeds = tuple({k: v for k, v in f.items() if k in names} for f in made.feeds)
        try:
            onnx.checker.check_model(model)
            found = examine(model, feeds, target, external=external)
        except Exception:  # an unusable reduction
            return False
        if found is None or found.stage != fault.stage:
            return False
        size[0] = count
        return True

    return reduced(made.model, fails)
