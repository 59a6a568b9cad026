"""Verification levels of rules: what sees a wrong rule, and that none is seen wrong on whole models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import unistack_aot.ops  # noqa: F401  registers the vocabulary
from models.catalogue import SMALL
from tests.rules.test_models import imported
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Input
from unistack_aot.aicf.parse import parse_example
from unistack_aot.base.errors import IRError
from unistack_aot.base.options import Options
from unistack_aot.ir.rewrite import Log
from unistack_aot.ops.pointwise import Abs, Exp, Neg
from unistack_aot.packing import Clock, about
from unistack_aot.pipeline import go_on
from unistack_aot.rules import apply_phase, apply_rules
from unistack_aot.rules.checked import Checks
from unistack_aot.rules.find import NodeJointRule, NodeRule, NodeUsers, any_, find
from unistack_aot.stages import Hooks, Ruled

LOST = NodeRule("lost-sign", find(Neg, any_("x"), name="root"), lambda root, x: x)
INVENTS = NodeRule(
    "invents",
    find(Neg, any_("x"), name="root"),
    lambda root, x: Node(Exp(), (Node(Input("elsewhere", x.tensor)),)),
)
DROPS = NodeRule("drops", find(Abs, any_("x"), name="root"), lambda root, x: x)


def _joint(users: NodeUsers) -> dict[Node, Node]:
    return {node: node.args[0] for node in users.order if isinstance(node.op, Neg)}


def _run(rule: NodeRule | NodeJointRule, text: str, level: int) -> tuple[Graph, Checks]:
    checks = Checks(level)
    return apply_phase(parse_example(text), (rule,), Log(), None, checks), checks


@pytest.mark.parametrize("rule", [LOST, NodeJointRule("joint", _joint)], ids=lambda r: r.name)
@pytest.mark.parametrize("text", ["neg(%x: f32[2])", "exp(neg(add(%x: f32[N, 2*M], %y: f32[])))"])
def test_level_3_sees_another_value(rule: NodeRule, text: str) -> None:
    _run(rule, text, 2)
    with pytest.raises(IRError, match=f"rule {rule.name} changes the value"):
        _run(rule, text, 3)


def test_level_2_sees_a_graph_that_is_none() -> None:
    _run(INVENTS, "neg(%x: f32[2])", 1)
    with pytest.raises(IRError, match="the latest invents: %elsewhere is used but not declared"):
        _run(INVENTS, "neg(%x: f32[2])", 2)
    with pytest.raises(IRError, match="after rule invents: %elsewhere is used but not declared"):
        _run(INVENTS, "neg(%x: f32[2])", 3)


def test_what_a_rule_knows_of_operands_counts() -> None:
    """|e^x| = e^x, although |x| = x is wrong of free values."""
    _, checks = _run(DROPS, "abs(exp(%x: f32[3]))", 3)
    assert checks.compared == {"drops": 1} and not checks.skipped


@pytest.mark.parametrize("same", [True, False])
def test_several_results_are_compared(same: bool) -> None:
    first = parse_example("item(moments(%x: f32[2, 3]) axes=[1]) k=0").results[0].args[0]
    other = "%x: f32[2, 3]" if same else "neg(%x: f32[2, 3])"
    second = parse_example(f"item(moments(add({other}, constant -0.0 : f32[])) axes=[1]) k=0")
    checks = Checks(3)
    if same:
        checks.fired("moved", first, second.results[0].args[0])
        assert checks.compared == {"moved": 1}
    else:
        with pytest.raises(IRError, match="rule moved changes the value"):
            checks.fired("moved", first, second.results[0].args[0])


def test_what_is_too_large_is_said() -> None:
    _, checks = _run(DROPS, "abs(exp(%x: f32[2000, 3000]))", 3)
    assert checks.skipped == [("drops", "it has more than 1048576 elements")]


@pytest.mark.parametrize("name", [each.name for each in SMALL])
def test_every_firing_keeps_the_value(name: str) -> None:
    model = imported(name)
    _, report = apply_rules(model.graph, model.origins, 3, dict(model.ranges))
    assert not report.skipped
    assert sum(report.compared.values()) == report.total


def test_level_1_sees_the_graphs_at_stage_borders(tmp_path: Path) -> None:
    """Before the rules and before lowering; nothing is written."""
    model = imported("lstm_small")
    graph = model.graph
    open_graph = Graph(graph.name, graph.inputs[1:], graph.outputs)
    asked, out = Options(("cpu",), verify=1), tmp_path / "m.pkg"
    for stage in (
        replace(model, graph=open_graph),
        Ruled(about(model), open_graph, model.origins),
    ):
        with pytest.raises(IRError, match="is used but not declared"):
            go_on(stage, out, asked, Hooks(), Clock())
    assert not out.exists()
