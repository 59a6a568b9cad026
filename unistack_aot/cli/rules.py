"""Where a rewrite rule fired in a model, and why it did not elsewhere."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


def explain_rule(model: Path, name: str) -> str:
    """The rule's report for a model; imports the compiler only now, since packages need none."""
    importing = import_module("unistack_aot.onnx_in")
    rules = import_module("unistack_aot.rules")
    rules.rule(name)
    imported = importing.import_model(model)
    _, report = rules.apply_rules(imported.graph, imported.origins)
    return str(report.explain(name))
