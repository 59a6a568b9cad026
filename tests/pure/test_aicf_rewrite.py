"""The rewriting driver and pass contracts: order, depth, refusals, ends."""

from __future__ import annotations

from time import perf_counter

import pytest

import unistack_aot.ops  # noqa: F401  registers the vocabulary
from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.parse import parse_example
from unistack_aot.base.errors import IRError
from unistack_aot.base.verdict import No
from unistack_aot.ir.passes import Pass, sequence
from unistack_aot.ir.rewrite import Log
from unistack_aot.ops.pointwise import Add, Exp, Neg
from unistack_aot.rules import apply_phase, apply_rules
from unistack_aot.rules.find import NodeRule, any_, find

DOUBLE = NodeRule("double", find(Neg, find(Neg, any_("x")), name="root"), lambda root, x: x)


def test_deep_chains() -> None:
    """20,000 nodes rewrite without recursion, in linear time."""
    graph = parse_example("exp(%x: f32[2])")
    node = graph.results[0]
    for _ in range(20_000):
        node = Node(Neg(), (node,))
    start = perf_counter()
    after = apply_phase(Graph("g", graph.inputs, (("y", node),)), (DOUBLE,), Log())
    assert after.results == graph.results
    assert perf_counter() - start < 20  # seconds; a quadratic driver needs minutes


def test_shared_terms_are_rewritten_once() -> None:
    log = Log()
    after = apply_phase(
        parse_example("%n = neg(neg(exp(%x: f32[2]))); add(%n, %n); mul(%n, %x)"), (DOUBLE,), log
    )
    assert log.fired["double"] == 1
    assert after.results == parse_example("%n = exp(%x: f32[2]); add(%n, %n); mul(%n, %x)").results


def test_commuted_arguments_match() -> None:
    rule = NodeRule(
        "r", find(Add, find(Exp, any_("x")), any_("y"), name="root"), lambda root, x, y: y
    )
    after = apply_phase(parse_example("add(%y: f32[2], exp(%x: f32[2]))"), (rule,), Log())
    assert after.results == parse_example("%y: f32[2]").results


def test_another_type_is_refused() -> None:
    graph, log = parse_example("neg(transpose(%x: f32[2, 3]) perm=[1, 0])"), Log()
    rule = NodeRule("r", find(Neg, any_("x"), name="root"), lambda root, x: x.args[0])
    assert apply_phase(graph, (rule,), log).results == graph.results
    assert "the replacement is f32[2, 3], not f32[3, 2]" in log.refused["r"][0][1]


def test_reasons_are_kept() -> None:
    graph, log = parse_example("neg(%x: f32[2])"), Log()
    rule = NodeRule("r", find(Neg, name="root"), lambda root: No("not today"))
    apply_phase(graph, (rule,), log)
    assert log.refused == {"r": [(graph.results[0], "not today")]}


def test_rules_without_end_are_named() -> None:
    there = NodeRule("there", find(Neg, any_("x"), name="root"), lambda root, x: Node(Exp(), (x,)))
    back = NodeRule("back", find(Exp, any_("x"), name="root"), lambda root, x: Node(Neg(), (x,)))
    with pytest.raises(IRError, match="do not come to an end"):
        apply_phase(parse_example("neg(%x: f32[2])"), (there, back), Log())


def test_origins_are_inherited() -> None:
    graph = parse_example("mul(exp(%x: f32[2]), constant 1.0 : f32[])")
    root = graph.results[0]
    origins = Origins({root: ("/mul",), root.args[0]: ("/exp",)})
    after, report = apply_rules(graph, origins)
    assert report.fired == {"identity-map": 1} and report.total == 1
    assert origins.of(after.results[0]) == ("/exp", "/mul")


def _same(program: int) -> int:
    return program


def test_pass_contracts() -> None:
    typed = Pass("type", _same, gives=frozenset({"typed"}))
    fold = Pass("fold", _same, needs=frozenset({"typed"}), gives=frozenset({"folded"}))
    loose = Pass("loosen", _same, breaks=frozenset({"typed"}))
    assert sequence((typed, fold)).facts == {"typed", "folded"}
    assert sequence((fold,), given=("typed",)).run(7) == 7
    with pytest.raises(IRError, match="nothing before it gives"):
        sequence((fold, typed))
    with pytest.raises(IRError, match="pass loosen breaks"):
        sequence((typed, loose, fold))
