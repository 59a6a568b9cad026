"""Semantic properties derived from formulas, and the verifier."""

from __future__ import annotations

import numpy as np
import pytest

import unistack_aot.ops  # noqa: F401  registers the vocabulary
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Op
from unistack_aot.aicf.parse import parse_example
from unistack_aot.aicf.properties import (
    affine_in,
    commutative,
    direction,
    formula_of,
    homomorphism,
    increasing,
    linear_in,
    total,
    zero_preserving,
)
from unistack_aot.aicf.verify import verify
from unistack_aot.base.errors import IRError
from unistack_aot.ir.evaluate import evaluate
from unistack_aot.ir.scalar import Scalar
from unistack_aot.ops.op import Pointwise
from unistack_aot.ops.samples import as_sample, parse_type


def formula(text: str) -> Scalar:
    found = formula_of(parse_example(text).results[0])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "k", "linear"),
    [
        ("mul(%x: f32[2], %y: f32[2])", 0, True),
        ("mul(%x: f16[2], %y: f16[2])", 1, True),
        ("add(%x: f32[2], %y: f32[2])", 0, False),
        ("sub(%x: f32[2], %y: f32[2])", 1, False),
        ("div(%x: f32[2], %y: f32[2])", 0, True),
        ("neg(%x: f32[2])", 0, True),
    ],
)
def test_affine(text: str, k: int, linear: bool) -> None:
    """f(x) = scale x + shift, in numbers."""
    found = affine_in(formula(text), k)
    assert found is not None and linear_in(formula(text), k) is linear
    rng = np.random.default_rng(0)
    args = tuple(rng.standard_normal(5) for _ in range(2))
    scale = 1.0 if found.scale is None else evaluate(found.scale, args)
    shift = 0.0 if found.shift is None else evaluate(found.shift, args)
    allowed = 1e-3 if "f16" in text else 1e-6
    expected = evaluate(formula(text), args).astype(np.float64)
    np.testing.assert_allclose(scale * args[k] + shift, expected, rtol=allowed)


@pytest.mark.parametrize(
    ("text", "k"),
    [
        ("div(%x: f32[2], %y: f32[2])", 1),
        ("exp(%x: f32[2])", 0),
        ("add(%x: i32[2], %y: i32[2])", 0),
        ("convert(%x: f32[2]) to=i32", 0),
        ("relu(%x: f32[2])", 0),
    ],
)
def test_not_affine(text: str, k: int) -> None:
    assert affine_in(formula(text), k) is None


UNARY = [
    pytest.param(cls, as_sample(given), id=f"{name}-{k}")
    for name, cls in sorted(Op.registry.items())
    if issubclass(cls, Pointwise)
    for k, given in enumerate(cls.samples)
    if len(as_sample(given).args) == 1
]


@pytest.mark.parametrize(("cls", "given"), UNARY)
def test_derived_properties_hold_in_numbers(cls: type[Pointwise], given) -> None:
    """What a formula is said to be, its values show."""
    op = cls(**dict(given.attributes))
    kind = parse_type(given.args[0])
    if not kind.dtype.is_float:
        return
    found = op.formula([kind.dtype])
    grid = np.linspace(-3, 3, 241).astype(kind.dtype.numpy)
    values = np.asarray(op.reference(grid), np.float64)
    if direction(found):
        known = values[~np.isnan(values)]
        assert (direction(found) * np.diff(known) >= -1e-6).all()
    if total(found):
        few = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e4, -1e4], kind.dtype.numpy)
        for given in (grid, few):
            got = np.asarray(op.reference(given), np.float64)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(given.astype(np.float64)))
    if zero_preserving(found):
        assert op.reference(np.zeros(1, kind.dtype.numpy))[0] == 0


def test_flags() -> None:
    assert homomorphism(formula("exp(%x: f32[2])")) == ("add", "mul")
    assert homomorphism(formula("tanh(%x: f32[2])")) is None
    assert increasing(formula("relu(%x: f32[2])")) and not increasing(formula("neg(%x: f32[2])"))
    assert total(formula("relu(%x: f32[2])")) and not total(formula("log(%x: f32[2])"))
    assert direction(formula("neg(%x: f32[2])")) == -1 and not direction(formula("abs(%x: f32[2])"))
    assert zero_preserving(formula("tanh(%x: f32[2])"))
    assert not zero_preserving(formula("exp(%x: f32[2])"))
    assert commutative(formula("add(%x: f32[2], %y: f32[2])"))
    assert not commutative(formula("sub(%x: f32[2], %y: f32[2])"))
    assert formula_of(parse_example("softmax(%x: f32[2]) axis=0").results[0]) is None


def test_verify_accepts_and_shows_the_neighbourhood() -> None:
    graph = parse_example("mul(exp(%x: f32[2]), %x)")
    verify(graph)
    wrong = object.__new__(Node)
    exp = graph.results[0].args[0]
    for field, value in (("op", exp.op), ("args", exp.args), ("type", parse_type("f32[3]"))):
        object.__setattr__(wrong, field, value)
    with pytest.raises(IRError) as fault:
        verify(Graph("g", graph.inputs, (("y", wrong),)))
    assert "it is f32[3], should be f32[2]" in str(fault.value)
    assert "> exp(%x: f32[2]) : f32[3]" in str(fault.value)


def test_verify_refuses_signatures() -> None:
    graph = parse_example("exp(%x: f32[2])")
    with pytest.raises(IRError, match="used but not declared"):
        verify(Graph("g", (), graph.outputs))
    with pytest.raises(IRError, match="declares an input twice"):
        verify(Graph("g", graph.inputs * 2, graph.outputs))
    with pytest.raises(IRError, match="outputs of one name"):
        verify(Graph("g", graph.inputs, graph.outputs * 2))
