"""Sentences about what cannot be compiled. Not here: finding it (importer.py)."""

from __future__ import annotations

from collections.abc import Sequence

from unistack_aot.onnx_in.scope import Gap
from unistack_aot.ops.onnx import IMPORTERS

_BY_DATA = frozenset({"NonZero", "Unique", "NonMaxSuppression", "Compress", "DynamicSlice"})
_STRINGS = frozenset(
    {
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "RegexFullMatch",
        "TfIdfVectorizer",
    }
)
_SEQUENCES = frozenset(
    {
        "ConcatFromSequence",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "SplitToSequence",
    }
)


def why_unknown(domain: str, op_type: str, version: int) -> tuple[str, str]:
    """Reason and way out for an operator without an importer."""
    if domain:
        return f"of domain {domain}", "export with official ONNX operators"
    if op_type in _BY_DATA:
        return (
            "whose result's extent depends on data",
            "move it out of the model, after its outputs",
        )
    if op_type in _STRINGS:
        return "", "string tensors are not supported"
    if op_type in _SEQUENCES:
        return "", "sequences and optionals are not supported; export with tensors"
    since = [entry[0] for entry in IMPORTERS.get(("", op_type), [])]
    if since:
        return f"of an opset before {min(since)}", f"export with opset {min(since)} or newer"
    return "", "implement it in unistack_aot/ops, or export without it"


def summary(model: str, gaps: Sequence[Gap]) -> tuple[str, str]:
    """What the error about all gaps says: one line per gap, names and operators aligned."""
    names = [f"'{gap.node}'" for gap in gaps]
    left, middle = max(map(len, names)), max(len(gap.what) for gap in gaps)
    lines = [
        f"  {name:<{left}}  {gap.what:<{middle}}  {gap.hint}".rstrip()
        for name, gap in zip(names, gaps, strict=True)
    ]
    operators = sum(1 for gap in gaps if gap.op)
    count = f"{operators} operator{'s' * (operators != 1)}"
    if operators < len(gaps):
        inputs = len(gaps) - operators
        words = f"{inputs} input{'s' * (inputs != 1)}"
        count = f"{count} and {words}" if operators else words
    head = f"{count} in {model} cannot be compiled"
    return "\n".join([head, *lines]), "change the model as said beside each line"
