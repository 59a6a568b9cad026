"""AICF text: what is printed reads back as the very same nodes."""

from __future__ import annotations

import numpy as np
import pytest

import unistack_aot.ops  # noqa: F401  registers the vocabulary
from models.catalogue import SMALL
from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Input, Op
from unistack_aot.aicf.parse import parse_example, parse_graph
from unistack_aot.aicf.text import constants_of, print_graph
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.dtypes import f32
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import parse, symbol
from unistack_aot.onnx_in import import_model
from unistack_aot.ops.convert import Convert
from unistack_aot.ops.core import Extents, constant, item
from unistack_aot.ops.op import Sample, TensorOp
from unistack_aot.ops.pointwise import Add
from unistack_aot.ops.samples import as_sample, parse_type

CASES = [
    pytest.param(cls, as_sample(given), id=f"{name}-{k}")
    for name, cls in sorted(Op.registry.items())
    if issubclass(cls, TensorOp)
    for k, given in enumerate(cls.samples)
]


def assert_reads_back(graph: Graph) -> None:
    text = print_graph(graph)
    again = parse_graph(text, constants_of(graph))
    assert again.name == graph.name
    assert [name for name, _ in again.outputs] == [name for name, _ in graph.outputs]
    assert all(a is b for a, b in zip(again.inputs, graph.inputs, strict=True)), text
    assert all(a is b for a, b in zip(again.results, graph.results, strict=True)), text


@pytest.mark.parametrize(("cls", "given"), CASES)
def test_samples_read_back(cls: type[TensorOp], given: Sample) -> None:
    inputs = tuple(Node(Input(f"x{k}", parse_type(t))) for k, t in enumerate(given.args))
    node = Node(cls(**dict(given.attributes)), inputs)
    single = isinstance(node.type, TensorType)
    results = [node] if isinstance(node.type, TensorType) else []
    results += [] if single else [item(node, k) for k in range(len(node.type.items))]
    outputs = tuple((f"y{k}", result) for k, result in enumerate(results))
    assert_reads_back(Graph("sample", inputs, outputs))


@pytest.mark.parametrize("entry", SMALL, ids=lambda entry: entry.name)
def test_models_read_back(entry) -> None:
    model = entry.load()
    dims = {name: (min(sizes), max(sizes)) for name, sizes in entry.dims(model).items()}
    assert_reads_back(import_model(model, dims).graph)


@pytest.mark.parametrize(
    "values",
    [
        np.float32([-0.0, 0.1, np.inf, -np.inf, np.nan, 1e-45, 3.4028235e38]),
        np.float16(0.1),
        np.asarray([[True], [False]]),
        np.int64([[-(2**63), 2**63 - 1]]),
        np.zeros((0, 3), np.float32),
        np.zeros(100, np.float32),
        np.frombuffer(bytes([1, 0, 0xC0, 0x7F]), np.float32),
    ],
    ids=repr,
)
def test_constants_keep_every_bit(values) -> None:
    assert_reads_back(Graph("c", (), (("y", constant(values)),)))


def test_odd_names_and_dimensions() -> None:
    kind = TensorType(f32, (symbol("f32"), parse("2*(a + 1)//b"), symbol("odd name")))
    x = Node(Input("input.1/x y", kind))
    z = Node(Extents((symbol("true"), parse("max(a, b) % 3"))))
    assert_reads_back(Graph("a b", (x,), (("out put", Node(Add(), (x, x))), ("1", z))))


def test_comments_name_origins() -> None:
    graph = parse_example("neg(neg(%x: f32[2]))")
    origins = Origins({graph.results[0]: ("/a", "b c")})
    text = print_graph(graph, origins)
    assert '# from "/a", "b c"' in text
    assert parse_graph(text).results == graph.results


def test_examples_declare_inputs_where_they_occur() -> None:
    graph = parse_example(
        "%h = add(%x: f32[N, 2], constant 1.0 : f32[]); mul(%h, %h); convert(%h) to=f16"
    )
    assert [node.op.label for node in graph.inputs] == ["x"]
    assert len(graph.outputs) == 2 and isinstance(graph.results[1].op, Convert)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("neg(%x)", "%x has no value yet"),
        ("frobnicate(%x: f32[2])", "there is no op frobnicate"),
        ("neg(%x: f32[2]) : f32[3]", "neg is f32[2], not f32[3]"),
        ("constant #0123 : f32[9]", "the array #0123 is not given"),
        ("neg(%x: f32[2]", "'the end'"),
        ("neg(%x: f32[2]) axis=1", "unexpected keyword argument 'axis'"),
        ("neg(?)", "'?' means nothing here"),
    ],
)
def test_faults_are_named(text: str, words: str) -> None:
    with pytest.raises(BadInput) as fault:
        parse_example(text)
    assert words in str(fault.value)
