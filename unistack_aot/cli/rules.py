"""Where a rewrite rule fired in a model, and why it did not elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RuleStory:
    """A rule's report for a model: as text, how often it fired, where it refused and why."""

    text: str
    fired: int
    refused: list[dict[str, str]]


def explain_rule(model: Path, name: str) -> RuleStory:
    """The rule's report for a model; imports the compiler only now, since packages need none."""
    importing = import_module("unistack_aot.onnx_in")
    rules = import_module("unistack_aot.rules")
    words = import_module("unistack_aot.aicf.text")
    rules.rule(name)
    imported = importing.import_model(model)
    _, report = rules.apply_rules(imported.graph, imported.origins)
    refused = [
        {"value": words.describe(node), "because": reason}
        for node, reason in report.refused.get(name, ())
    ]
    return RuleStory(report.explain(name), report.fired.get(name, 0), refused)
