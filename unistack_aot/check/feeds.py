"""Inputs for a model: seeded, of the right shapes, and with integers that make sense where they go.

Not here: which sizes are tried (cases.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, Constant, Input
from unistack_aot.artifact.manifest import Tensor
from unistack_aot.base.dtypes import parse_dtype
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import evaluate, parse
from unistack_aot.ops.compare import Equal
from unistack_aot.ops.control import Loop, refusals
from unistack_aot.ops.gather import Gather, GatherElements, GatherNd, OneHot

FEW = 2
"""How many different values an integer gets whose use says nothing: 0 and 1."""
DRAWS = 8
"""How often inputs are drawn for a graph with a branch that refuses to run."""
TRIPS = 4
"""The most iterations an input asks a loop for."""


@dataclass(frozen=True, slots=True)
class Values:
    """What an input may hold: integers from `low` to `high - 1`; `mask`: ones, then zeros.

    `named` are numbers that the graph compares the whole input with, such as a sample rate.
    """

    low: int
    high: int
    mask: bool = False
    named: tuple[int, ...] = ()


def ranges_of_inputs(graph: Graph) -> dict[str, Values]:
    """Safe values of every integer or bool input, from what the graph does with it."""
    users = _users(graph)
    return {
        node.op.label: _range(node, users)
        for node in graph.inputs
        if isinstance(node.op, Input) and not node.tensor.dtype.is_float
    }


def _users(graph: Graph) -> dict[Node, list[tuple[Node, int]]]:
    found: dict[Node, list[tuple[Node, int]]] = {}
    for node in graph.nodes():
        for position, arg in enumerate(node.args):
            found.setdefault(arg, []).append((node, position))
    return found


def _range(start: Node, users: Mapping[Node, list[tuple[Node, int]]]) -> Values:
    """The smallest table that the values index; else a mask by name; else a few small numbers."""
    assert isinstance(start.op, Input)
    limits = [limit for limit in _limits(start, users) if limit > 0]
    if limits:
        return Values(0, min(limits))
    if "mask" in start.op.label.lower() and start.tensor.rank >= 1:
        return Values(0, 2, mask=True)
    return Values(0, FEW, named=_compared(start, users))


def _compared(start: Node, users: Mapping[Node, list[tuple[Node, int]]]) -> tuple[int, ...]:
    """The constants of one element that an input is found equal to or not."""
    if start.tensor.dtype.is_bool or any(d != 1 for d in start.tensor.shape):
        return ()
    others = (
        arg.op.data.array
        for user, _ in users.get(start, ())
        if isinstance(user.op, Equal)
        for arg in user.args
        if isinstance(arg.op, Constant)
    )
    return tuple(dict.fromkeys(int(a.reshape(-1)[0]) for a in others if a.size == 1))


def _limits(start: Node, users: Mapping[Node, list[tuple[Node, int]]]) -> Iterator[int]:
    seen, pending = {start}, [start]
    while pending:
        for user, position in users.get(pending.pop(), ()):
            limit = _table_size(user, position)
            if limit is not None:
                yield limit
            elif _passes_on(user) and user not in seen:
                seen.add(user)
                pending.append(user)


def _passes_on(user: Node) -> bool:
    """Whether a use keeps the values: movements, casts and selections between integers."""
    if user.op.family == "reindex":
        return True
    return user.op.family == "pointwise" and all(
        arg.tensor.dtype.is_int or arg.tensor.dtype.is_bool for arg in user.args
    )


def _table_size(user: Node, position: int) -> int | None:
    """How many values an index may take; None if this use is no indexing."""
    size: object = None
    match user.op:
        case Gather(axis=axis) | GatherElements(axis=axis) if position == 1:
            size = user.args[0].tensor.shape[axis]
        case GatherNd(batch=batch) if position == 1:
            table, index = user.args[0].tensor.shape, user.args[1].tensor.shape[-1]
            sizes = [d for d in table[batch:] if isinstance(d, int)]
            size = min(sizes, default=1) if isinstance(index, int) else 1
        case OneHot() if position == 0:
            size = user.op.depth
        case Equal():
            return _listed(user.args[1 - position])
        case Loop() if position == 0:
            size = TRIPS
        case _:
            return None
    return size if isinstance(size, int) else 1


def _listed(other: Node) -> int | None:
    """One more than the largest of the numbers that integers are looked up in: one-hot by Equal."""
    while other.op.family == "reindex" and len(other.args) == 1:
        other = other.args[0]
    numbers = other.op.data.array if isinstance(other.op, Constant) else np.zeros(0)
    distinct = np.unique(numbers) if numbers.dtype.kind in "iu" else numbers
    return int(distinct[-1]) + 1 if distinct.size > FEW else None


def drawn(
    inputs: tuple[Tensor, ...], dims: Mapping[str, int], graph: Graph, seed: int
) -> dict[str, Array]:
    """One seeded array per input of a package, for sizes of its dimensions.

    Floats are standard normal, masks ones followed by zeros, other integers as the graph's use of
    them allows. Where a branch refuses to run, inputs are drawn again until they avoid it.
    """
    random = np.random.default_rng(seed)
    ranges = ranges_of_inputs(graph)
    feeds: dict[str, Array] = {}
    for _ in range(DRAWS if any(refusals(graph)) else 1):
        feeds = {
            tensor.name: _array(
                tensor, shape_of(tensor, dims), ranges.get(tensor.name, Values(0, FEW)), random
            )
            for tensor in inputs
        }
        if not any(refusals(graph)) or _accepted(graph, feeds):
            break
    return feeds


def _accepted(graph: Graph, feeds: Mapping[str, Array]) -> bool:
    try:
        evaluate_graph(graph, feeds)
    except BadInput:
        return False
    return True


def shape_of(tensor: Tensor, dims: Mapping[str, int]) -> tuple[int, ...]:
    """The extents of an input or output for sizes of the dimensions."""
    return tuple(evaluate(parse(size), dims) for size in tensor.shape)


def nbytes(tensor: Tensor, dims: Mapping[str, int]) -> int:
    """The size of an input or output in bytes."""
    return prod(shape_of(tensor, dims)) * parse_dtype(tensor.dtype).bytes


def _array(
    tensor: Tensor, shape: tuple[int, ...], values: Values, random: np.random.Generator
) -> Array:
    dtype = parse_dtype(tensor.dtype)
    if dtype.is_float:
        if "mask" in tensor.name.lower():
            return _mask(shape, random).astype(dtype.numpy)
        return np.asarray(random.standard_normal(shape, dtype=np.float32)).astype(dtype.numpy)
    if values.mask:
        return _mask(shape, random).astype(dtype.numpy)
    if dtype.is_bool:
        return np.asarray(random.random(shape) < 0.75)
    if values.named and random.random() < 0.5:
        return np.full(shape, random.choice(values.named)).astype(dtype.numpy)
    low = 1 if values.high == TRIPS + 1 else values.low
    return np.asarray(random.integers(low, values.high, shape)).astype(dtype.numpy)


def _mask(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Ones, then zeros along the last axis; each row keeps at least half of its positions."""
    if not shape:
        return np.ones(shape)
    length = shape[-1]
    kept = random.integers((length + 1) // 2, length + 1, (*shape[:-1], 1))
    return np.arange(length) < kept
