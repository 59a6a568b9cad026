"""Operator coverage pages in Markdown: one section per model and one union table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from models.summary import Summary


def page(summaries: Mapping[str, Summary]) -> str:
    """Return a Markdown page over named summaries: the union table first, then each model."""
    parts = ["# Operators over the model catalogue\n", union(summaries)]
    parts += [section(name, summary) for name, summary in summaries.items()]
    return "\n".join(parts)


def union(summaries: Mapping[str, Summary]) -> str:
    """Return the table of all operators, sorted by the number of models that need them."""
    users: dict[str, list[str]] = defaultdict(list)
    total: Counter[str] = Counter()
    variants: dict[str, Counter[str]] = defaultdict(Counter)
    for name, summary in summaries.items():
        total.update(summary.ops)
        for op in summary.ops:
            users[op].append(name)
        for variant in summary.variants:
            op, _, fact = variant.partition("(")
            variants[op][fact[:-1]] += 1
    order = sorted(users, key=lambda op: (-len(users[op]), -total[op], op))
    lines = [f"{len(order)} operators over {len(summaries)} models.\n"]
    lines += ["| operator | models | nodes | in (up to 4) |", "|---|---:|---:|---|"]
    for op in order:
        lines.append(f"| {op} | {len(users[op])} | {total[op]} | {', '.join(users[op][:4])} |")
    lines += ["", "## Variants (number of models)", ""]
    for op in sorted(variants):
        facts = "; ".join(f"{fact} ({count})" for fact, count in variants[op].most_common())
        lines.append(f"* **{op}**: {facts}")
    return "\n".join(lines) + "\n"


def section(name: str, summary: Summary) -> str:
    """Return one model's section: opset, inputs, outputs, operators, dtypes."""

    def counts(counter: Counter[str]) -> str:
        return ", ".join(f"{key} {count}" for key, count in counter.most_common())

    lines = [
        f"## {name}",
        f"* opset {summary.opset}; {summary.nodes} nodes; {summary.parameters:,} weights",
        f"* inputs {'; '.join(summary.inputs)}",
        f"* outputs {'; '.join(summary.outputs)}",
        f"* dynamic {', '.join(summary.dynamic) or 'nothing'}",
        f"* operators {counts(summary.ops)}",
        f"* dtypes {counts(summary.dtypes)}",
    ]
    return "\n".join(lines) + "\n"
