"""Chains of contractions taken in the order with the fewest products. Not here: one contraction."""

from __future__ import annotations

from math import prod
from string import ascii_letters

from unistack_aot.aicf.node import Node
from unistack_aot.base.symbolic import Dim, Ranges, bounds, simplify, text
from unistack_aot.base.verdict import No
from unistack_aot.ir.pattern import Uses
from unistack_aot.ops.contract import Contract, contract
from unistack_aot.ops.reindex import static
from unistack_aot.rules.find import NodeRule, find, is_constant, known_array

SMALL = 1024 * 1024  # bytes of constants up to which their product is taken at compile time


def _chain(root: Node, uses: Uses, ranges: Ranges) -> Node | No:
    """(A B) C = A (B C) where that takes fewer products at all sizes."""
    if not root.tensor.dtype.is_float:
        return No("its elements are not floats")
    reasons: list[str] = []
    for at in (0, 1):
        inner = root.args[at]
        if not isinstance(inner.op, Contract) or inner.tensor.dtype is not root.tensor.dtype:
            continue
        if uses(inner) > 1:
            reasons.append("the inner product is used elsewhere too")
            continue
        for first in (0, 1):
            found = _regrouped(root, at, first, ranges)
            if isinstance(found, Node):
                return found
            reasons.append(found.reason)
    return No("; ".join(dict.fromkeys(reasons)) or "neither operand is a product")


def _regrouped(root: Node, at: int, first: int, ranges: Ranges) -> Node | No:
    """With the operand `first` of the inner contraction multiplied last, if that is cheaper."""
    outer, inner = root.op, root.args[at]
    assert isinstance(outer, Contract) and isinstance(inner.op, Contract)
    mine, other = (outer.left, outer.right) if at == 0 else (outer.right, outer.left)
    if any(len(set(labels)) < len(labels) for labels in (mine, inner.op.left, inner.op.right)):
        return No("a label repeats within an operand")
    names = dict(zip(inner.op.out, mine, strict=True))
    free = iter(sorted(set(ascii_letters) - set(outer.left + outer.right)))
    for label in inner.op.summed:
        names[label] = next(free)
    sides = ["".join(names[c] for c in labels) for labels in (inner.op.left, inner.op.right)]
    last, kept = sides[first], sides[1 - first]
    a, b, c = inner.args[first], inner.args[1 - first], root.args[1 - at]
    joint = "".join(x for x in dict.fromkeys(kept + other) if x in last or x in outer.out)
    extents = _extents((last, a), (kept, b), (other, c))
    constants = is_constant(b) and is_constant(c)
    if constants and known_array(b).nbytes + known_array(c).nbytes > SMALL:
        return No("constants would have to be multiplied at every run")
    if constants and prod(_sizes(joint, extents)) > known_array(b).size + known_array(c).size:
        return No("the product of the constants is larger than they are")
    before = _count(sides[0] + sides[1], extents) + _count(mine + other, extents)
    after = (0 if constants else _count(kept + other, extents)) + _count(joint + last, extents)
    saved = simplify(before - after, ranges)
    low, _ = bounds(saved, ranges)
    if low is None or low < 0 or saved == 0:
        return No(f"{text(after)} products are not always fewer than {text(before)}")
    return contract(a, contract(b, c, kept, other, joint), last, joint, outer.out)


def _extents(*operands: tuple[str, Node]) -> dict[str, Dim]:
    return {c: d for labels, x in operands for c, d in zip(labels, x.tensor.shape, strict=True)}


def _sizes(labels: str, extents: dict[str, Dim]) -> list[int]:
    return list(static([extents[c] for c in labels], "extents"))


def _count(labels: str, extents: dict[str, Dim]) -> Dim:
    """Products of a contraction over these labels."""
    count: Dim = 1
    for label in dict.fromkeys(labels):
        count = count * extents[label]
    return count


MATRIX = 'left="ac" right="cb" out="ab"'


def rules(ranges: Ranges) -> tuple[NodeRule, ...]:
    """The rules for symbolic dimensions in these ranges."""
    return (
        NodeRule(
            "cheapest-order",
            find(
                Contract,
                name="root",
                test=lambda n: any(isinstance(a.op, Contract) for a in n.args),
            ),
            lambda root, uses: _chain(root, uses, ranges),
            needs=("bilinear", "associative", "reassociated"),
            counts=True,
            fires=(
                (
                    f"contract(contract(%x: f32[40, 3], %y: f32[3, 50]) {MATRIX},"
                    f" %z: f32[50, 2]) {MATRIX}"
                ),
                (
                    f"contract(%z: f32[2, 50], contract(%x: f32[50, 3], %y: f32[3, 40]) {MATRIX})"
                    f" {MATRIX}"
                ),
                (
                    'contract(contract(%q: f32[2, 30, 4], %k: f32[2, 30, 4]) left="aid"'
                    ' right="ajd" out="aij", %v: f32[2, 30, 5]) left="aij" right="aje" out="aie"'
                ),
                (
                    f"contract(contract(%x: f32[N, 8], constant ~1 : f32[8, 6]) {MATRIX},"
                    f" constant ~2 : f32[6, 3]) {MATRIX}"
                ),
                (
                    f"contract(contract(%x: f32[N + 9, 3], %y: f32[3, N + 9]) {MATRIX},"
                    f" %z: f32[N + 9, 2]) {MATRIX}"
                ),
            ),
            holds=(
                (
                    f"contract(contract(%x: f32[3, 50], %y: f32[50, 4]) {MATRIX},"
                    f" %z: f32[4, 40]) {MATRIX}"
                ),
                (
                    f"contract(contract(%x: f32[N, 3], %y: f32[3, M]) {MATRIX},"
                    f" %z: f32[M, 2]) {MATRIX}"
                ),
                (
                    f"%p = contract(%x: f32[40, 3], %y: f32[3, 50]) {MATRIX}; %p;"
                    f" contract(%p, %z: f32[50, 2]) {MATRIX}"
                ),
                (
                    f"contract(contract(%x: f32[N, 80], constant ~1 : f32[80, 2]) {MATRIX},"
                    f" constant ~2 : f32[2, 80]) {MATRIX}"
                ),
                (
                    f"contract(contract(%x: i32[40, 3], %y: i32[3, 50]) {MATRIX},"
                    f" %z: i32[50, 2]) {MATRIX}"
                ),
            ),
        ),
    )
