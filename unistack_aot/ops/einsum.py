"""ONNX Einsum as contractions of two operands at a time. Not here: the contraction op."""

from __future__ import annotations

from string import ascii_letters

from unistack_aot.aicf.node import Node
from unistack_aot.ops.contract import contract
from unistack_aot.ops.core import constant
from unistack_aot.ops.fold import reduced
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.reindex import expand, reshape, transpose


@onnx("Einsum", since=12)
def import_einsum(call: OnnxCall) -> Node:
    """Einstein summation of any number of operands, from left to right."""
    operands = [call.arg(k) for k in range(len(call.args))]
    terms, out = _labels(call, operands)
    pending = [_squeezed(x, t, operands, terms) for x, t in zip(operands, terms, strict=True)]
    value, labels = _alone(*pending[0])
    for k in range(1, len(pending)):
        other, right = _alone(*pending[k])
        needed = set(out).union(*(rest for _, rest in pending[k + 1 :]))
        kept = "".join(c for c in dict.fromkeys(labels + right) if c in needed)
        final = k == len(pending) - 1 and set(kept) == set(out)
        kept = out if final else kept
        value, labels = contract(value, other, labels, right, kept), kept
    return _arranged(value, labels, out, operands, terms)


def _labels(call: OnnxCall, operands: list[Node]) -> tuple[list[str], str]:
    """Single-letter labels of every operand and of the result; an ellipsis becomes letters."""
    equation = str(call.attributes["equation"]).replace(" ", "")
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise call.refuse(f"{equation!r} of {len(operands)} operands", "the model is malformed")
    free = [c for c in reversed(ascii_letters) if c not in equation]
    longest = max(
        x.tensor.rank - len(t.replace("...", "")) for x, t in zip(operands, terms, strict=True)
    )
    dots = "".join(free[:longest]) if "..." in equation else ""
    named: list[str] = []
    for x, term in zip(operands, terms, strict=True):
        missing = x.tensor.rank - len(term.replace("...", ""))
        named.append(term.replace("...", dots[len(dots) - missing :] if missing else ""))
        if len(named[-1]) != x.tensor.rank:
            raise call.refuse(f"{equation!r} with an operand {x.tensor}", "the model is malformed")
    if arrow:
        return named, out.replace("...", dots)
    seen = "".join(t.replace("...", "") for t in terms)
    once = "".join(sorted(c for c in set(seen) if seen.count(c) == 1))
    return named, dots + once


def _squeezed(x: Node, labels: str, operands: list[Node], terms: list[str]) -> tuple[Node, str]:
    """The operand without axes of extent 1 that another operand repeats along."""
    wide = {
        c
        for other, term in zip(operands, terms, strict=True)
        for c, extent in zip(term, other.tensor.shape, strict=True)
        if extent != 1
    }
    shape = x.tensor.shape
    kept = [k for k, c in enumerate(labels) if shape[k] != 1 or c not in wide]
    return reshape(x, tuple(shape[k] for k in kept)), "".join(labels[k] for k in kept)


def _alone(x: Node, labels: str) -> tuple[Node, str]:
    """The operand with repeated labels replaced by its diagonal."""
    once = "".join(dict.fromkeys(labels))
    if once == labels:
        return x, labels
    return contract(x, constant(1, x), labels, "", once), once


def _arranged(value: Node, labels: str, out: str, operands: list[Node], terms: list[str]) -> Node:
    """`value` summed, ordered and repeated to the result's labels."""
    gone = tuple(k for k, c in enumerate(labels) if c not in out)
    value = reduced("sum", value, gone, keepdims=False)
    labels = "".join(c for c in labels if c in out)
    present = "".join(c for c in out if c in labels)
    value = transpose(value, [labels.index(c) for c in present])
    if present == out:
        return value
    extents = {
        c: extent
        for x, term in zip(operands, terms, strict=True)
        for c, extent in zip(term, x.tensor.shape, strict=True)
    }
    sizes = dict(zip(present, value.tensor.shape, strict=True))
    spread = reshape(value, tuple(sizes.get(c, 1) for c in out))
    return expand(spread, tuple(extents[c] for c in out))
