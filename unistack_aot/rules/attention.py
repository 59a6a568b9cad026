"""Attention derived from contraction, scale, mask, softmax, contraction. Not here: masks.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.properties import affine_in, formula_of
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim
from unistack_aot.base.verdict import No
from unistack_aot.ir.pattern import Uses
from unistack_aot.ops.attention import Attention
from unistack_aot.ops.compare import And, Not, Where
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.convert import Convert, converted
from unistack_aot.ops.core import constant
from unistack_aot.ops.op import Pointwise
from unistack_aot.ops.pointwise import Add, Div, Mul
from unistack_aot.ops.reindex import Expand, Reshape, Transpose, reshape, transpose
from unistack_aot.ops.softmax import Softmax
from unistack_aot.rules.find import NodeRule, add, find, multiply, number_of
from unistack_aot.rules.masks import HIDDEN, is_causal

PEEL = 12  # maps between the two contractions, or on an operand; real models have up to five


@dataclass(frozen=True)
class Step:
    """What happens to scores: a mask is added, or `low` replaces them where it is not `shown`."""

    mask: Node
    factor: float
    low: float | None = None
    shown: bool = True


@dataclass(frozen=True)
class Scores:
    """factor * contraction, then the steps, outermost first."""

    contract: Node
    factor: float
    steps: tuple[Step, ...]


def _factor(node: Node) -> tuple[Node, float] | None:
    """A map that multiplies one operand by a number: that operand and the number."""
    if not isinstance(node.op, Mul | Div):
        return None
    for k, other in ((0, 1), (1, 0)):
        number = number_of(node.args[other])
        formula = formula_of(node)
        if number is None or formula is None or node.args[k].type != node.type:
            continue
        found = affine_in(formula, k)
        if found is None or found.shift is not None or number == 0:
            continue
        return node.args[k], number if isinstance(node.op, Mul) else 1 / number
    return None


def _scores(node: Node) -> Scores | No:
    """Follow scores down to the contraction they come from."""
    factor, steps = 1.0, list[Step]()
    for _ in range(PEEL):
        if isinstance(node.op, Contract):
            return Scores(node, factor, tuple(steps))
        found = _factor(node)
        if found is not None:
            node, factor = found[0], factor * found[1]
            continue
        if isinstance(node.op, Convert) and node.args[0].tensor.dtype.is_float:
            node = node.args[0]
            continue
        masked = _masked(node, factor)
        if masked is None:
            return No(f"scores pass through {node.op.name}")
        node, step = masked
        steps.append(step)
    return No("scores pass through a long chain")


def _masked(node: Node, factor: float) -> tuple[Node, Step] | None:
    if isinstance(node.op, Add):
        for k, other in ((0, 1), (1, 0)):
            if node.args[k].type == node.type and _leads_to_contraction(node.args[k]):
                return node.args[k], Step(node.args[other], factor)
    if isinstance(node.op, Where):
        condition, yes, no = node.args
        for scores, fill, shown in ((yes, no, True), (no, yes, False)):
            low = number_of(fill)
            if low is not None and low == low and scores.type == node.type:
                return scores, Step(condition, factor, low * factor, shown)
    return None


def _leads_to_contraction(node: Node) -> bool:
    for _ in range(PEEL):
        if isinstance(node.op, Contract):
            return True
        if not isinstance(node.op, Pointwise):
            return False
        inner = [a for a in node.args if a.type == node.type] or list(node.args[:1])
        below = [a for a in inner if isinstance(a.op, Contract)]
        node = (below or inner)[0]
    return False


def _unscaled(node: Node) -> tuple[Node, float]:
    """An operand without the numbers it is multiplied by; reindexing commutes with them."""
    moves: list[Node] = []
    factor, inner = 1.0, node
    for _ in range(PEEL):
        found = _factor(inner)
        if found is not None:
            inner, factor = found[0], factor * found[1]
        elif isinstance(inner.op, Transpose | Reshape):
            moves.append(inner)
            inner = inner.args[0]
        else:
            break
    if factor == 1:
        return node, 1.0
    for move in reversed(moves):
        inner = Node(move.op, (inner,))
    return inner, factor


@dataclass(frozen=True)
class Roles:
    """Labels: batch, heads that only queries have, queries, keys, width, width of values."""

    batch: str
    heads: str
    rows: str
    keys: str
    width: str
    values: str


@dataclass(frozen=True)
class Labelled:
    """A node with a label per axis."""

    node: Node
    labels: str

    def ordered(self, order: str) -> Node | None:
        """The node with its axes in that order; axes of one element that are not in it vanish."""
        kept = "".join(c for c in self.labels if c in order)
        node = self.node
        if len(kept) < len(self.labels):
            pairs = tuple(zip(self.labels, node.tensor.shape, strict=True))
            if any(c not in order and d != 1 for c, d in pairs):
                return None
            node = reshape(node, tuple(d for c, d in pairs if c in order))
        if sorted(kept) != sorted(order):
            return None
        return transpose(node, [kept.index(c) for c in order])

    def extent(self, label: str) -> Dim:
        """The extent of one axis."""
        return self.node.tensor.shape[self.labels.index(label)]


def _roles(q: Labelled, k: Labelled, v: Labelled, scores: str, out: str, axis: int) -> Roles | No:
    keys = scores[axis]
    batch = "".join(c for c in scores if c in q.labels and c in k.labels and c in v.labels)
    own = "".join(c for c in scores if c not in k.labels and c not in v.labels)
    width = "".join(
        c for c in q.labels if c in k.labels and c not in scores and q.extent(c) != 1
    ) or "".join(c for c in q.labels if c in k.labels and c not in scores)
    values = "".join(c for c in v.labels if c not in scores and c in out)
    if keys in q.labels or keys in out or keys not in k.labels or keys not in v.labels:
        return No("softmax does not run over the keys")
    if len(batch) + len(own) != len(scores) - 1 or not 1 <= len(own) <= 2 or len(batch) > 2:
        return No("the axes are not those of batches, heads, queries and keys")
    if len(width) != 1 or len(values) != 1 or (len(own) == 2 and len(batch) > 1):
        return No("queries or values have no single axis of their own")
    if sorted(out) != sorted(batch + own + values):
        return No("the result's axes are not batch, heads, queries and values")
    return Roles(batch, own[:-1], own[-1], keys, width, values)


def _ungrouped(x: Node, head: int) -> Node | None:
    """Heads repeated by Reshape(Expand(...)): each in turn, as grouped queries use them."""
    if not isinstance(x.op, Reshape) or not isinstance(x.args[0].op, Expand):
        return None
    wide, source = x.args[0].tensor.shape, x.args[0].args[0]
    shape = x.tensor.shape
    if len(wide) != len(shape) + 1 or source.tensor.rank != len(wide):
        return None
    groups, repeats = wide[head], wide[head + 1]
    if not isinstance(groups, int) or not isinstance(repeats, int):
        return None
    if wide != (*shape[:head], groups, repeats, *shape[head + 1 :]):
        return None
    if source.tensor.shape != (*wide[: head + 1], 1, *wide[head + 2 :]):
        return None
    return reshape(source, (*shape[:head], groups, *shape[head + 1 :]))


def _attention(root: Node, weights: Node, v: Node) -> Node | No:
    soft = weights.args[0] if isinstance(weights.op, Convert) else weights
    if not isinstance(soft.op, Softmax) or not weights.tensor.dtype.is_float:
        return No("the weights are no softmax")
    scores = _scores(soft.args[0])
    if isinstance(scores, No):
        return scores
    first, second = scores.contract.op, root.op
    assert isinstance(first, Contract) and isinstance(second, Contract)
    mine, theirs = second.left, second.right
    if root.args[0] is not weights:
        mine, theirs = theirs, mine
    names = str.maketrans(dict(zip(mine, first.out, strict=True)))
    spare = {c: chr(ord("A") + k) for k, c in enumerate(second.left + second.right)}
    names = {ord(c): spare[c] for c in second.left + second.right} | names
    pairs = [
        Labelled(a, each)
        for a, each in zip(scores.contract.args, (first.left, first.right), strict=True)
    ]
    keys = first.out[soft.op.axis]
    q, k = pairs if keys in pairs[1].labels else reversed(pairs)
    value, out = Labelled(v, theirs.translate(names)), second.out.translate(names)
    if len({q.node.tensor.dtype, k.node.tensor.dtype, v.tensor.dtype, root.tensor.dtype}) > 1:
        return No("the operands' element types differ")
    roles = _roles(q, k, value, first.out, out, soft.op.axis)
    return roles if isinstance(roles, No) else _built(root, scores, roles, (q, k, value), out)


def _built(
    root: Node, scores: Scores, roles: Roles, parts: tuple[Labelled, ...], out: str
) -> Node | No:
    """The attention node, its operands in order, its result back in the order of `out`."""
    q, k, v = parts
    q_node, q_factor = _unscaled(q.node)
    k_node, k_factor = _unscaled(k.node)
    lead = roles.batch + roles.heads
    query = Labelled(q_node, q.labels).ordered(lead + roles.rows + roles.width)
    key = Labelled(k_node, k.labels).ordered(roles.batch + roles.keys + roles.width)
    value = v.ordered(roles.batch + roles.keys + roles.values)
    if query is None or key is None or value is None:
        return No("an operand has an axis of its own")
    if len(roles.batch) == 2:
        key, value = _grouped(key, value, len(roles.batch) - 1)
    masks = _combined(scores, roles, q, k)
    if isinstance(masks, No):
        return masks
    head = 0 if not roles.heads else 1
    operands = [
        _four(query, len(lead)),
        _four(key, len(lead) - head),
        _four(value, len(lead) - head),
    ]
    operands += [_laid_out(mask, scores.contract, roles, root) for mask in masks.nodes]
    try:
        scale = scores.factor * q_factor * k_factor
        made = Node(Attention(scale, masks.causal, masks.hidden), tuple(operands))
    except IRError as fault:
        return No(fault.what)
    order = lead + roles.rows + roles.values
    shape = tuple(d for d in (*query.tensor.shape[:-1], value.tensor.shape[-1]))
    return transpose(reshape(made, shape), [order.index(c) for c in out])


def _four(x: Node, lead: int) -> Node:
    """[lead..., rows, columns] with exactly two leading axes: batch and heads."""
    shape = x.tensor.shape
    if lead == 2:
        return x
    return reshape(x, (*shape[:lead], *((1,) * (2 - lead)), *shape[lead:]))


def _grouped(key: Node, value: Node, head: int) -> tuple[Node, Node]:
    """Keys and values without repeated heads, where both repeat them alike."""
    few_keys, few_values = _under(key, head), _under(value, head)
    if few_keys is None or few_values is None:
        return key, value
    if few_keys.tensor.shape[head] != few_values.tensor.shape[head]:
        return key, value
    return few_keys, few_values


def _under(x: Node, head: int) -> Node | None:
    """`_ungrouped`, also below a Transpose that comes after the repetition."""
    if isinstance(x.op, Transpose):
        inner = _ungrouped(x.args[0], x.op.perm[head])
        return None if inner is None else transpose(inner, x.op.perm)
    return _ungrouped(x, head)


@dataclass(frozen=True)
class Masks:
    """What hides scores: causality, one mask that is added, one of truth values that selects.

    The last gives `hidden` where it is false, whatever the score is.
    """

    causal: bool
    nodes: tuple[Node, ...] = ()
    hidden: float = -math.inf


def _combined(scores: Scores, roles: Roles, q: Labelled, k: Labelled) -> Masks | No:
    """The masks of all steps, in the scores' axis order."""
    labels = scores.contract.op
    assert isinstance(labels, Contract)
    rows, keys = q.extent(roles.rows), k.extent(roles.keys)
    plain = labels.out[-2:] == roles.rows + roles.keys
    if plain and len(scores.steps) == 1 and _causal(scores.steps[0], rows, keys):
        return Masks(True)
    added: list[Node] = []
    chosen: list[Node] = []
    dtype = q.node.tensor.dtype
    replaced = {step.low for step in scores.steps if step.low is not None}
    if len(replaced) > 1:
        return No("hidden scores are replaced by several numbers")
    for step in reversed(scores.steps):
        if step.low is not None:
            chosen.append(step.mask if step.shown else Node(Not(), (step.mask,)))
            continue
        if chosen:
            return No("a mask is added to scores of which some were replaced")
        mask = converted(step.mask, dtype)
        added.append(mask if step.factor == 1 else multiply(mask, constant(step.factor, mask)))
    nodes = (*([reduce(add, added)] if added else []), *([reduce(_both, chosen)] if chosen else []))
    return Masks(False, nodes, min(replaced, default=-math.inf))


def _both(x: Node, y: Node) -> Node:
    return Node(And(), (x, y))


def _causal(step: Step, rows: Dim, keys: Dim) -> bool:
    if step.low is None:
        return bool(is_causal(step.mask, rows, keys, step.factor))
    return step.low <= HIDDEN and step.shown and bool(is_causal(step.mask, rows, keys, None))


def _laid_out(mask: Node, first: Node, roles: Roles, root: Node) -> Node:
    """The mask, given in the scores' axis order, as [batch, heads, queries, keys]."""
    op = first.op
    assert isinstance(op, Contract)
    order = roles.batch + roles.heads + roles.rows + roles.keys
    shape = (1,) * (len(op.out) - mask.tensor.rank) + mask.tensor.shape
    lead = len(roles.batch + roles.heads)
    if op.out == order and lead == 2:
        return mask
    moved = transpose(reshape(mask, shape), [op.out.index(c) for c in order])
    return _four(moved, lead)


def _first_softmax(root: Node, uses: Uses) -> Node | No:
    """Try either operand as the weights."""
    reasons: list[str] = []
    for k in (0, 1):
        if _is_weights(root.args[k]):
            if max(uses(root.args[k]), uses(root.args[k].args[0])) > 1:
                reasons.append("the weights are used elsewhere")
                continue
            found = _attention(root, root.args[k], root.args[1 - k])
            if not isinstance(found, No):
                return found
            reasons.append(found.reason)
    return No("; ".join(reasons) or "no operand is a softmax")


def _is_weights(node: Node) -> bool:
    return isinstance(node.op, Softmax) or (
        isinstance(node.op, Convert) and isinstance(node.args[0].op, Softmax)
    )


SHAPES = "%q: f32[2, 3, 5, 4], %k: f32[2, 3, 6, 4]"
SCORES = f'contract({SHAPES}) left="abce" right="abde" out="abcd"'
MASK = "%m: bool[2, 1, 1, 6]"
MIX = ', %v: f32[2, 3, 6, 7]) left="abce" right="abed" out="abcd"'
SQUARE = 'contract(%q: f32[2, N, 4], %k: f32[2, N, 4]) left="abd" right="acd" out="abc"'
MIX_SQUARE = ', %v: f32[2, N, 4]) left="abd" right="adc" out="abc"'
STEPS = "progression() start=0 step=1 count=N"
POSITIONS = f"less_or_equal({STEPS}, reshape({STEPS}) shape=[N, 1])"

RULES: tuple[NodeRule, ...] = (
    NodeRule(
        "attention",
        find(
            Contract,
            name="root",
            test=lambda n: _is_weights(n.args[0]) or _is_weights(n.args[1]),
        ),
        _first_softmax,
        needs=("bilinear", "homomorphism", "distributive", "associative"),
        counts=True,
        fires=(
            f"contract(softmax(div({SCORES}, constant 2.0 : f32[])) axis=3{MIX}",
            f"contract(softmax(add({SCORES}, %m: f32[2, 1, 1, 6])) axis=3{MIX}",
            f"contract(softmax(where({MASK}, {SCORES}, constant -1e9 : f32[])) axis=3{MIX}",
            f"contract(softmax(where({MASK}, constant -1.0 : f32[], {SCORES})) axis=3{MIX}",
            (
                f"contract(softmax(where({MASK}, add({SCORES}, %a: f32[6]), constant -inf : f32[]))"
                f" axis=3{MIX}"
            ),
            (
                "contract(softmax(contract(mul(%q: f32[2, 5, 3, 4], constant 0.5 : f32[]),"
                " mul(transpose(%k: f32[2, 6, 3, 4]) perm=[0, 2, 1, 3], constant 0.5 : f32[]))"
                f' left="acbe" right="abde" out="abcd") axis=3{MIX}'
            ),
            (
                f"contract(softmax(where({POSITIONS}, {SQUARE}, constant -1e9 : f32[]))"
                f" axis=2{MIX_SQUARE}"
            ),
            (
                f"contract(softmax(add({SQUARE}, trilu(expand(constant -inf : f32[]) shape=[N, N])"
                f" upper=true diagonal=1)) axis=2{MIX_SQUARE}"
            ),
        ),
        holds=(
            f"contract(softmax({SCORES}) axis=2{MIX}",
            (
                f"contract(softmax(add(where({MASK}, {SCORES}, constant -1e9 : f32[]),"
                f" %a: f32[6])) axis=3{MIX}"
            ),
            f"contract(softmax(exp({SCORES})) axis=3{MIX}",
            f"%w = softmax({SCORES}) axis=3; %w; contract(%w{MIX}",
        ),
    ),
)
