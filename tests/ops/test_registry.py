"""Every registered op, every sample: its type rule, numpy meaning and lowering agree."""

from __future__ import annotations

import numpy as np
import pytest

import unistack_aot.ops
from unistack_aot.aicf.bind import bind_value
from unistack_aot.aicf.op import Array, Op
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.symbolic import symbols
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.ops.op import Sample, TensorOp
from unistack_aot.ops.samples import as_sample, parse_type, sample_arrays

CASES = [
    pytest.param(cls, as_sample(given), id=f"{name}-{k}")
    for name, cls in sorted(Op.registry.items())
    if issubclass(cls, TensorOp)
    for k, given in enumerate(cls.samples)
]


def tolerance(dtype: np.dtype) -> float:
    """Relative and absolute error allowed between two orders of evaluation."""
    return {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}.get(dtype.name, 0)


def assert_same(actual: Array, expected: Array, what: str) -> None:
    """Equal dtype, shape and values up to rounding; NaN equals NaN."""
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype}, not {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: {actual.shape}, not {expected.shape}"
    if (allowed := tolerance(expected.dtype)) == 0:
        np.testing.assert_array_equal(actual, expected, err_msg=what)
    else:
        wide = (np.asarray(a, np.float64) for a in (actual, expected))
        np.testing.assert_allclose(*wide, rtol=allowed, atol=allowed, err_msg=what)


def results_of(value: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    """One or several results as a tuple."""
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize(("cls", "given"), CASES)
def test_sample(cls: type[TensorOp], given: Sample) -> None:
    op = cls(**dict(given.attributes))
    types = tuple(parse_type(t) for t in given.args)
    dims = {name: 3 for t in types for d in t.shape for name in symbols(d)}
    arrays = sample_arrays(given, dims)
    bound_types = tuple(bind_value(t, dims) for t in types)
    bound = bind_value(op, dims)
    kind = bound.infer(*bound_types)
    kinds = (kind,) if isinstance(kind, TensorType) else kind.items
    expected = results_of(bound.reference(*arrays))
    for each, array in zip(kinds, expected, strict=True):
        assert array.dtype == each.dtype.numpy, f"reference gives {array.dtype}, infer {each}"
        assert array.shape == each.shape, f"reference gives {array.shape}, infer {each}"
    loose = op.infer(*types)
    loose_kinds = (loose,) if isinstance(loose, TensorType) else loose.items
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(types))
    outs = tuple(Param(f"y{k}", t.dtype, t.shape, Access.OUT) for k, t in enumerate(loose_kinds))
    kernel = op.lower(args, outs)
    feeds = {p.name: a for p, a in zip(args, arrays, strict=True)}
    actual = evaluate_kernel(kernel, feeds, dims)
    for out, array in zip(outs, expected, strict=True):
        assert_same(actual[out.name], array, f"lowering of {op}")


def test_f64_reference() -> None:
    """The reference computes in the dtype it is given: f64 in, f64 out."""
    for name, cls in Op.registry.items():
        if not issubclass(cls, TensorOp) or cls.family not in ("pointwise", "fold", "contract"):
            continue
        given = as_sample(cls.samples[0])
        arrays = sample_arrays(given, {})
        if not arrays or arrays[0].dtype != np.float32 or name in ("convert", "filled"):
            continue
        op = cls(**dict(given.attributes))
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        narrow = results_of(op.reference(*arrays))
        for result, other in zip(results_of(op.reference(*wide)), narrow, strict=True):
            if other.dtype.kind == "f":
                assert result.dtype == np.float64, name
                np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-5, err_msg=name)


def test_families_are_listed() -> None:
    """Every op's module is one that `ops/__init__.py` names."""
    for name, cls in Op.registry.items():
        module = cls.__module__.rpartition(".")[2]
        if cls.__module__.startswith("unistack_aot.ops."):
            assert module in unistack_aot.ops.FAMILIES, f"{name} is in {module}"
