"""Rewrites of AICF, one file per theme. Not here: the driver (ir/rewrite.py), loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Op
from unistack_aot.aicf.text import attributes, describe
from unistack_aot.base import options
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import Ranges
from unistack_aot.ir.rewrite import Language, Log, rewrite
from unistack_aot.rules import (
    algebra,
    attention,
    chains,
    extremes,
    matmul,
    online,
    reindex,
    shared,
    tidy,
)
from unistack_aot.rules.checked import Checks
from unistack_aot.rules.find import NodeJointRule, NodeRule
from unistack_aot.rules.provenance import inherit, rebuilt

AnyRule = NodeRule | NodeJointRule


@dataclass(frozen=True)
class Phase:
    """Rules of some themes, applied together until none fires."""

    name: str
    rules: tuple[AnyRule, ...]


# Attention is found before scales move into weights: its scale is part of its own meaning.
# Contractions are joined once scales are in their weights: nothing folds through the slices.
def phases(ranges: Ranges) -> tuple[Phase, ...]:
    """All phases in order, for symbolic dimensions in these ranges."""
    tidying = (*tidy.RULES, *reindex.RULES)
    return (
        Phase("tidy", (*tidying, *online.RULES)),
        Phase("attention", attention.RULES),
        Phase(
            "algebra", (*tidying, *algebra.RULES, *extremes.rules(ranges), *chains.rules(ranges))
        ),
        Phase("join", (*tidying, *shared.RULES)),
    )


# Not applied by default: direct convolution is as fast on the host, and needs no other layout.
OPTIONAL: tuple[Phase, ...] = (Phase("matmul", matmul.RULES),)


@dataclass(frozen=True)
class RuleReport:
    """What the rules did: nodes before and after, firings, refusals, and the time in seconds.

    `firings` are (rule, replaced node) in order. From verification level 3 on, `compared` counts
    the firings by rule whose two sides were evaluated, and `skipped` says why others were not.
    """

    before: int
    after: int
    fired: Mapping[str, int]
    refused: Mapping[str, tuple[tuple[Node, str], ...]]
    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict[str, float])
    firings: tuple[tuple[str, Node], ...] = ()
    compared: Mapping[str, int] = field(default_factory=dict[str, int])
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def total(self) -> int:
        """All firings."""
        return sum(self.fired.values())

    def explain(self, name: str) -> str:
        """Where a rule fired or why it did not, as text; BadInput if there is no such rule."""
        rule(name)
        lines = [f"rule {name}: fired {self.fired.get(name, 0)} times"]
        for node, reason in self.refused.get(name, ()):
            lines.append(f"  not at {describe(node)}\n    because {reason}")
        return "\n".join(lines)


def rule(name: str) -> AnyRule:
    """The rule of that name; BadInput if there is none."""
    for each in all_rules():
        if each.name == name:
            return each
    raise BadInput(f"no rule is called {name!r}", hint="the rules are listed in docs/aicf.md")


def all_rules() -> tuple[AnyRule, ...]:
    """Every rule of every phase, optional ones included, once."""
    return tuple({r.name: r for phase in (*phases({}), *OPTIONAL) for r in phase.rules}.values())


def apply_rules(
    graph: Graph,
    origins: Origins | None = None,
    level: int | None = None,
    ranges: Ranges | None = None,
) -> tuple[Graph, RuleReport]:
    """The graph after all phases, and what happened; `origins` learns where new nodes come from.

    `level` is of verification (`Options.verify`, the usual one if not given), `ranges` what the
    symbolic dimensions may be.
    """
    start, before = perf_counter(), sum(1 for _ in graph.nodes())
    run = Run(Log(), origins, Checks(options.VERIFY if level is None else level, ranges or {}))
    graph = run.ruled(graph)
    log, checks = run.log, run.checks
    refused = {name: tuple(found) for name, found in log.refused.items()}
    after = sum(1 for _ in graph.nodes())
    return graph, RuleReport(
        before,
        after,
        dict(log.fired),
        refused,
        perf_counter() - start,
        run.seconds,
        tuple(log.firings),
        dict(checks.compared),
        tuple(checks.skipped),
    )


@dataclass
class Run:
    """One application of all phases: what is told of it, and the checks on the way."""

    log: Log
    origins: Origins | None
    checks: Checks
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def ruled(self, graph: Graph) -> Graph:
        """All phases over the regions of control ops, then over the graph around them."""
        done: dict[Node, Node] = {}
        for node in graph.nodes():
            args, op = tuple(done[arg] for arg in node.args), node.op
            regions = {name: value for name, value in attributes(op) if isinstance(value, Graph)}
            for name, region in regions.items():
                op = replace(op, **{name: self.ruled(region)})  # type: ignore[type-var]
            done[node] = node if op is node.op and args == node.args else Node(op, args)
        graph = graph.with_results(done[node] for node in graph.results)
        for phase in phases(self.checks.ranges):
            began = perf_counter()
            graph = apply_phase(graph, phase.rules, self.log, self.origins, self.checks)
            self.seconds[phase.name] = self.seconds.get(phase.name, 0.0) + perf_counter() - began
        return graph


def apply_phase(
    graph: Graph,
    rules: tuple[AnyRule, ...],
    log: Log,
    origins: Origins | None = None,
    checks: Checks | None = None,
) -> Graph:
    """The graph after applying some rules until none fires."""

    def build(op: Op, args: tuple[Node, ...]) -> Node:
        return Node(op, args)

    def passed(roots: tuple[Node, ...]) -> None:
        told.passed(graph.with_results(roots), log.firings[-1][0] if log.firings else "none")

    told = Checks(options.VERIFY) if checks is None else checks
    names = Origins() if origins is None else origins
    language = Language(build, partial(inherit, names), partial(rebuilt, names), told.fired, passed)
    return graph.with_results(rewrite(graph.results, rules, language, log))
