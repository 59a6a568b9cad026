"""All rules on whole models: the same numbers, and the structure they are for."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np
import pytest

from models.catalogue import SMALL, Entry, entry
from tests.rules.test_examples import assert_equal_graphs
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.verify import verify
from unistack_aot.onnx_in import Imported, import_model
from unistack_aot.ops.attention import Attention
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.convolve import Convolve
from unistack_aot.ops.pointwise import Mul
from unistack_aot.ops.softmax import Softmax
from unistack_aot.rules import RuleReport, apply_rules
from unistack_aot.rules.find import is_constant


def tolerance_of(name: str) -> float:
    """Relative to the greatest magnitude of an output: rounding only."""
    return 2e-2 if name.endswith("f16") else 1e-3 if "int8" in name else 1e-4


@lru_cache(maxsize=4)
def imported(name: str) -> Imported:
    found: Entry = entry(name)
    model = found.load()
    sizes = found.dims(model)
    dims = {key: (min(values), max(values)) for key, values in sizes.items()}
    return import_model(model, dims)


@lru_cache(maxsize=4)
def ruled(name: str) -> tuple[Graph, RuleReport]:
    model = imported(name)
    return apply_rules(model.graph, model.origins)


def kinds(graph: Graph) -> Counter[type]:
    return Counter(type(node.op) for node in graph.nodes())


@pytest.mark.parametrize("name", [e.name for e in SMALL])
def test_same_numbers(name: str) -> None:
    model = imported(name)
    graph, report = ruled(name)
    verify(graph)
    assert report.after <= report.before
    feeds = entry(name).feeds()
    before, after = evaluate_graph(model.graph, feeds), evaluate_graph(graph, feeds)
    for output, value in before.items():
        wide, got = np.asarray(value, np.float64), np.asarray(after[output], np.float64)
        if value.dtype.kind in "biu":
            np.testing.assert_array_equal(got, wide, err_msg=output)
            continue
        scale = max(1e-6, float(np.abs(wide).max(initial=0)))
        np.testing.assert_allclose(
            got, wide, rtol=1e-3, atol=scale * tolerance_of(name), err_msg=output
        )


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("bert_small", 2),
        ("bert_small_dynamic", 2),
        ("bert_small_split", 2),
        ("bert_small_both", 2),
        ("bert_small_f16", 2),
        ("bert_small_int8", 2),
        ("vit_small", 2),
        ("vit_small_dynamic", 2),
        ("speech_small", 2),
        ("speech_small_dynamic", 2),
    ],
)
def test_attention_is_found(name: str, layers: int) -> None:
    graph, report = ruled(name)
    found = kinds(graph)
    assert found[Attention] == layers, report.explain("attention")
    assert not found[Softmax]


@pytest.mark.parametrize(
    "name", ["gpt2_small", "gpt2_small_trilu", "gpt2_small_range", "gpt2_small_fixed"]
)
def test_causal_masks_are_proved(name: str) -> None:
    graph, report = ruled(name)
    found = [node for node in graph.nodes() if isinstance(node.op, Attention)]
    assert len(found) == 2, report.explain("attention")
    assert all(node.op.causal and len(node.args) == 3 for node in found)


def test_grouped_queries_share_keys() -> None:
    found = entry("llama_small")
    feeds = found.feeds()
    sizes = {key: values[-1] for key, values in found.dims().items()}
    usual = {axis: size for axis, size in _sizes(feeds).items() if axis in sizes}
    model = import_model(found.load(), usual)
    graph, report = apply_rules(model.graph)
    nodes = [node for node in graph.nodes() if isinstance(node.op, Attention)]
    assert len(nodes) == 2, report.explain("attention")
    for node in nodes:
        heads, shared = node.args[0].tensor.shape[1], node.args[1].tensor.shape[1]
        assert int(str(heads)) > int(str(shared))
    assert_equal_graphs(model.graph, graph, feeds)


def _sizes(feeds: dict[str, np.ndarray]) -> dict[str, int]:
    """The named dimensions of llama's feeds."""
    ids, mask = feeds["input_ids"], feeds["attention_mask"]
    batch, sequence = ids.shape
    total = mask.shape[1]
    return {
        "batch": batch,
        "sequence": sequence,
        "past": total - sequence,
        "past_sequence": total,
    }


@pytest.mark.parametrize(
    "name", ["resnet_small", "resnet_small_bottleneck", "resnet_small_dynamic", "unet_small"]
)
def test_normalisation_vanishes_into_convolutions(name: str) -> None:
    graph, _ = ruled(name)
    for node in graph.nodes():
        scales = isinstance(node.op, Mul) and any(is_constant(a) for a in node.args)
        assert not (scales and any(isinstance(a.op, Convolve) for a in node.args))
    assert kinds(graph)[Mul] == 0


def test_queries_keys_and_values_are_one_contraction() -> None:
    graph, report = ruled("bert_small")
    assert report.fired["join-shared-operand"] == 6
    # per layer: joined projection, output projection, two of the feed-forward; and the pooler
    assert kinds(graph)[Contract] == 2 * 4 + 1


@pytest.mark.parametrize("name", ["bert_small", "bert_small_dynamic"])
def test_attention_comes_from_its_own_layer(name: str) -> None:
    """And from nothing that only feeds it: the projections are other nodes."""
    model, (graph, _) = imported(name), ruled(name)
    found = [model.origins.of(n) for n in graph.nodes() if isinstance(n.op, Attention)]
    assert len(found) == 2
    for layer, labels in enumerate(found):
        prefix = f"/encoder/layer.{layer}/attention/"
        assert all(label.startswith(prefix) for label in labels), labels
        short = {label.removeprefix(prefix) for label in labels}
        assert {"MatMul", "Softmax", "MatMul_1"} < short
        assert not short & {"query/MatMul", "key/MatMul", "value/MatMul", "query/Add"}


def test_joined_projections_name_all_three() -> None:
    model, (graph, _) = imported("bert_small"), ruled("bert_small")
    labels = [model.origins.of(n) for n in graph.nodes() if isinstance(n.op, Contract)]
    for layer in range(2):
        parts = {f"/encoder/layer.{layer}/attention/{x}/MatMul" for x in ("query", "key", "value")}
        (joined,) = [names for names in labels if parts <= set(names)]
        assert len(joined) <= 3 * 4, joined


def test_refusals_are_explained() -> None:
    _, report = ruled("bert_small")
    text = report.explain("affine-into-contraction")
    assert "not at" in text and "because" in text
