"""Seeded random ONNX graphs: values, types and the loop that grows a graph.

Not here: which operators there are (random_nodes.py, random_blocks.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference

Array: TypeAlias = NDArray[Any]
Extent: TypeAlias = int | str
OPSETS = (13, 17, 20, 21)
EXTENTS = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 100)
CHANNELS = (1, 3, 5, 8, 12, 16, 17, 24)
LARGEST = 6_000  # elements of one value: the evaluators are slow
FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int64", "int32", "int8", "uint8")
CODES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}
NAMES: Mapping[int, str] = {code: name for name, code in CODES.items()}
ATTEMPTS, APART = 20, 1 << 40  # seeds that are tried where one gives no valid model
SYMBOLS = {"N": (1, 3), "S": (5, 2)}  # two bindings of every symbolic dimension


class Unfit(Exception):
    """The drawn operator does not fit the values at hand; another one is drawn."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph; an extent that is no number is a name, equal names are equal."""

    name: str
    dtype: str
    shape: tuple[Extent, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether it holds floats."""
        return self.dtype in FLOATS

    @property
    def fixed(self) -> bool:
        """Whether every extent is a number."""
        return all(isinstance(d, int) for d in self.shape)

    def size(self, binding: int = 1) -> int:
        """Number of elements; unknown names count as 8."""
        total = 1
        for d in self.shape:
            total *= d if isinstance(d, int) else SYMBOLS.get(d, (8, 8))[binding]
        return total


@dataclass(frozen=True, slots=True)
class Made:
    """A model, its inputs for each binding of symbolic dimensions, and the seed it came from."""

    seed: int
    model: onnx.ModelProto
    feeds: tuple[Mapping[str, Array], ...]

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators in it, region bodies included."""
        return tuple(sorted(set(_operators(self.model.graph))))


def _operators(graph: onnx.GraphProto) -> list[str]:
    found: list[str] = []
    for node in graph.node:
        found.append(node.op_type)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += _operators(attribute.g)
    return found


@dataclass
class Builder:
    """A graph while it grows."""

    seed: int
    opset: int
    symbolic: bool = False
    special: bool = False
    dtypes: Sequence[str] = ("float32",)
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: dict[str, Value] = field(default_factory=dict)
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    finite: set[str] = field(default_factory=set)
    counter: int = 0
    prefix: str = "v"

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.numbers = np.random.default_rng(self.seed)

    # --- choices -----------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self.random.random() < probability

    def extent(self, most: int = 40) -> int:
        """An extent, small ones more often."""
        if self.chance(0.6):
            return self.random.choice([e for e in (1, 2, 3, 4, 5, 7, 8) if e <= most])
        return self.random.choice([e for e in EXTENTS if e <= most])

    def dtype(self) -> str:
        """A float type."""
        return self.random.choice(self.dtypes) if self.chance(0.8) else "float32"

    def pick(self, test: Callable[[Value], bool] = lambda v: True, old: float = 0.8) -> Value:
        """A value that passes the test: an existing one, late ones more often; Unfit if none."""
        fitting = [v for v in self.values if test(v)]
        if not fitting:
            raise Unfit
        if self.chance(0.6):
            fitting = fitting[-4:]
        return self.random.choice(fitting)

    def real(self, low: int = 0, high: int = 5, dtype: str | None = None) -> Value:
        """A float value with a rank in the range, existing or a fresh input."""

        def fits(v: Value) -> bool:
            right = v.is_float if dtype is None else v.dtype == dtype
            return right and low <= v.rank <= high

        if self.chance(0.85) and any(fits(v) for v in self.values):
            return self.pick(fits)
        rank = self.random.randint(low, min(high, 4))
        return self.input(dtype or self.dtype(), [self.extent(17) for _ in range(rank)])

    # --- values ------------------------------------------------------------------------------------

    def fresh(self) -> str:
        """A new name."""
        self.counter += 1
        return f"{self.prefix}{self.counter}"

    def input(
        self, dtype: str, shape: Sequence[Extent], limits: tuple[int, int] = (-4, 5)
    ) -> Value:
        """A graph input; integers in it lie within `limits`."""
        value = Value(self.fresh(), dtype, tuple(shape))
        named = all(isinstance(d, int) or d in SYMBOLS for d in shape)
        if not named or value.size() > LARGEST:
            raise Unfit
        self.inputs[value.name] = value
        self.limits[value.name] = limits
        self.values.append(value)
        return value

    def constant(self, array: Array, known: bool = False) -> Value:
        """An initializer; only `known` ones are offered to later operators."""
        value = Value(self.fresh(), array.dtype.name, tuple(int(n) for n in array.shape))
        self.constants[value.name] = array
        if known:
            self.values.append(value)
        return value

    def numbers_of(self, dtype: str, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Random content of a tensor."""
        if dtype in FLOATS:
            return np.asarray(self.numbers.standard_normal(tuple(shape)) * scale).astype(dtype)
        if dtype == "bool":
            return np.asarray(self.numbers.random(tuple(shape)) < 0.5)
        low = 0 if dtype == "uint8" else -4
        return np.asarray(self.numbers.integers(low, 5, tuple(shape))).astype(dtype)

    def weight(self, dtype: str, shape: Sequence[int], scale: float = 1.0) -> Value:
        """A constant operand, or (less often) a fresh input of that shape."""
        if self.chance(0.25):
            value = self.input(dtype, shape)
            self.finite.add(value.name)  # infinity times a padding zero is NaN in some runtimes
            return value
        return self.constant(self.numbers_of(dtype, shape, scale))

    def ints(self, values: Sequence[int], dtype: str = "int64") -> Value:
        """A constant integer vector."""
        return self.constant(np.asarray(values, dtype))

    # --- nodes -------------------------------------------------------------------------------------

    def node(
        self, op: str, args: Sequence[Value | None], outputs: int = 1, **attributes: Any
    ) -> Value:
        """Append a node; its first result. Unfit where ONNX's own type rule refuses it."""
        return self.many(op, args, outputs, **attributes)[0]

    def many(
        self, op: str, args: Sequence[Value | None], outputs: int, **attributes: Any
    ) -> tuple[Value, ...]:
        """Append a node with several results."""
        names = [self.fresh() for _ in range(outputs)]
        node = helper.make_node(
            op,
            ["" if a is None else a.name for a in args],
            names,
            name=f"{self.prefix}n{self.counter}",
        )
        for key, value in attributes.items():
            node.attribute.append(helper.make_attribute(key, value))
        results = self._typed(node, [a for a in args if a is not None])
        if any(v.size() > LARGEST for v in results):
            raise Unfit
        self.nodes.append(node)
        self.values += results
        return tuple(results)

    def _typed(self, node: onnx.NodeProto, args: Sequence[Value]) -> list[Value]:
        types = {a.name: helper.make_tensor_type_proto(CODES[a.dtype], a.shape) for a in args}
        data = {
            a.name: numpy_helper.from_array(self.constants[a.name], a.name)
            for a in args
            if a.name in self.constants and self.constants[a.name].size <= 16
        }
        opset = [helper.make_opsetid("", self.opset)]
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
            found = shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=opset
            )
        except (shape_inference.InferenceError, onnx.defs.SchemaError, ValueError) as error:
            raise Unfit from error
        return [self._value(name, found.get(name)) for name in node.output]

    def _value(self, name: str, kind: onnx.TypeProto | None) -> Value:
        if kind is None or not kind.tensor_type.HasField("shape"):
            raise Unfit
        shape: list[Extent] = []
        for k, dim in enumerate(kind.tensor_type.shape.dim):
            known = dim.dim_value if dim.HasField("dim_value") else dim.dim_param
            shape.append(known or (0 if dim.HasField("dim_value") else f"{name}_{k}"))
        element = kind.tensor_type.elem_type
        if 0 in shape or element not in NAMES:
            raise Unfit
        return Value(name, NAMES[element], tuple(shape))

    # --- the finished model ------------------------------------------------------------------------

    def outputs(self) -> list[Value]:
        """Everything unused, some intermediate values, and now and then an input."""
        used = {name for node in self.nodes for name in node.input}
        made = [v for v in self.values if v.name not in self.constants]
        own = [v for v in made if v.name not in self.inputs]
        chosen = [v for v in own if v.name not in used or self.chance(0.12)]
        if self.chance(0.05) and self.inputs:
            chosen.append(self.random.choice(list(self.inputs.values())))
        return list(dict.fromkeys(chosen)) or own[-1:]

    def model(self) -> onnx.ModelProto:
        """The model, checked."""
        inputs = [self._info(v) for v in self.inputs.values()]
        outputs = [self._info(v) for v in self.outputs()]
        graph = helper.make_graph(
            self.nodes,
            f"random_{self.seed}",
            inputs,
            outputs,
            [numpy_helper.from_array(a, name) for name, a in self.constants.items()],
        )
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9
        )
        onnx.checker.check_model(made)
        return made

    def _info(self, value: Value) -> onnx.ValueInfoProto:
        shape = [d if isinstance(d, int) or d in SYMBOLS else None for d in value.shape]
        return helper.make_tensor_value_info(value.name, CODES[value.dtype], shape)

    def feeds(self, binding: int) -> dict[str, Array]:
        """Inputs for one binding of the symbolic dimensions; special values where asked for."""
        found: dict[str, Array] = {}
        for value in self.inputs.values():
            shape = [d if isinstance(d, int) else SYMBOLS[d][binding] for d in value.shape]
            found[value.name] = self._drawn(value, shape)
        return found

    def _drawn(self, value: Value, shape: Sequence[int]) -> Array:
        if value.is_float:
            array = self.numbers_of(value.dtype, shape)
            if self.special and value.name not in self.finite and self.chance(0.5) and array.size:
                flat = array.reshape(-1)
                for special in (np.nan, np.inf, -np.inf, 0.0):  # x + 0 drops the sign of -0
                    flat[self.numbers.integers(0, array.size)] = special
            return array
        if value.dtype == "bool":
            return self.numbers_of("bool", shape)
        low, high = self.limits[value.name]
        low = max(0, low) if value.dtype == "uint8" else low
        return np.asarray(self.numbers.integers(low, high, tuple(shape))).astype(value.dtype)


Vocabulary: TypeAlias = Mapping[Callable[[Builder], object], float]


def generate(
    seed: int,
    vocabulary: Vocabulary,
    steps: int | None = None,
    special: bool = False,
    prefix: str = "v",
    opset: int | None = None,
) -> Made:
    """A random model of a few nodes with its inputs; equal seeds give equal models."""
    for attempt in range(ATTEMPTS):
        with suppress(Unfit, onnx.checker.ValidationError):  # a type that an operator lacks
            return _generated(seed + attempt * APART, vocabulary, steps, special, prefix, opset)
    raise Unfit


def _generated(
    seed: int,
    vocabulary: Vocabulary,
    steps: int | None,
    special: bool,
    prefix: str,
    opset: int | None,
) -> Made:
    choice = random.Random(seed * 7919 + 1)
    builder = Builder(
        seed,
        opset or choice.choices(OPSETS, (1, 3, 4, 2))[0],
        symbolic=choice.random() < 0.3,
        special=special,
        dtypes=FLOATS if choice.random() < 0.25 else ("float32",),
        prefix=prefix,
    )
    start(builder)
    words, weights = list(vocabulary), list(vocabulary.values())
    count = steps if steps is not None else choice.randint(2, 9)
    for _ in range(count):
        grow(builder, words, weights)
    if not builder.nodes:
        builder.node("Neg", [builder.input("float32", [2, 3])])
    model = builder.model()
    bindings = (0, 1) if any(not v.fixed for v in builder.inputs.values()) else (0,)
    return Made(seed, model, tuple(builder.feeds(k) for k in bindings))


def packed(parts: Sequence[Made]) -> Made:
    """One model that computes all of several, which must differ in prefix and agree in opset."""
    graphs = [part.model.graph for part in parts]
    graph = helper.make_graph(
        [n for g in graphs for n in g.node],
        "packed",
        [i for g in graphs for i in g.input],
        [o for g in graphs for o in g.output],
        [t for g in graphs for t in g.initializer],
    )
    model = helper.make_model(graph, opset_imports=parts[0].model.opset_import, ir_version=9)
    count = max(len(part.feeds) for part in parts)
    feeds = [
        {k: v for part in parts for k, v in part.feeds[min(b, len(part.feeds) - 1)].items()}
        for b in range(count)
    ]
    return Made(parts[0].seed, model, tuple(feeds))


def start(builder: Builder) -> None:
    """The first input."""
    while not builder.values:
        with suppress(Unfit):
            first(builder)


def first(builder: Builder) -> None:
    """An input of rank 2 to 4 more often than others; a symbolic extent where wanted."""
    rank = builder.random.choices((1, 2, 3, 4, 5, 0), (2, 4, 4, 4, 1, 0.3))[0]
    shape: list[Extent] = [builder.extent(33) for _ in range(rank)]
    if rank == 4 and builder.chance(0.6):
        shape[1:] = [builder.random.choice(CHANNELS), builder.extent(17), builder.extent(17)]
    if builder.symbolic and rank:
        shape[0] = "N"
        if rank > 1 and builder.chance(0.5):
            shape[builder.random.randrange(1, rank)] = "S"
    builder.input(builder.dtype(), shape)


def grow(
    builder: Builder,
    words: Sequence[Callable[[Builder], object]],
    weights: Sequence[float],
) -> None:
    """Add one operator or block; a draw that does not fit leaves no trace and is drawn again."""
    for _ in range(20):
        kept = (
            len(builder.values),
            len(builder.nodes),
            set(builder.inputs),
            set(builder.constants),
        )
        try:
            builder.random.choices(words, weights)[0](builder)
            return
        except Unfit:
            del builder.values[kept[0] :]
            del builder.nodes[kept[1] :]
            made: tuple[tuple[dict[str, Any], set[str]], ...] = (
                (builder.inputs, kept[2]),
                (builder.constants, kept[3]),
            )
            for held, names in made:
                for name in [n for n in held if n not in names]:
                    del held[name]
