"""Every sample of every op through the CUDA target: legalised, printed, run on the emulator, checked for races."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.build.device_kernels import Decided, decide, image_text, run_case
from unistack_aot.aicf.bind import bind_value
from unistack_aot.aicf.op import Op
from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.symbolic import symbols
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.ops.op import Sample, TensorOp
from unistack_aot.ops.samples import as_sample, parse_type, sample_arrays

Array = np.ndarray[Any, Any]
FAMILIES = sorted({cls.family for cls in Op.registry.values() if issubclass(cls, TensorOp)})
# Rounding differs by the order of sums and by exp, erf and pow of another library.
TOLERANCE = {"float64": 1e-11, "float32": 5e-5, "float16": 4e-3, "bfloat16": 4e-2}


@dataclass(frozen=True)
class Case:
    """One sample of one op."""

    name: str
    op: TensorOp
    given: Sample


def cases(family: str) -> Iterator[Case]:
    """The samples of a family."""
    for name, cls in sorted(Op.registry.items()):
        if issubclass(cls, TensorOp) and cls.family == family:
            for number, given in enumerate(cls.samples):
                sample = as_sample(given)
                op = cls(**dict(sample.attributes))
                yield Case(f"{name.replace('-', '_')}_{number}", op, sample)


def items(kind: Type) -> tuple[TensorType, ...]:
    """One or several result types."""
    return (kind,) if isinstance(kind, TensorType) else kind.items


@cache
def built(family: str) -> tuple[str, dict[str, Decided]]:
    """The text with all kernels of a family, and its cases by name."""
    decided: dict[str, Decided] = {}
    for case in cases(family):
        types = tuple(parse_type(t) for t in case.given.args)
        args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(types))
        outs = tuple(
            Param(f"y{k}", t.dtype, t.shape, Access.OUT)
            for k, t in enumerate(items(case.op.infer(*types)))
        )
        decided[case.name] = decide(case.op.lower(args, outs), case.name)
    return image_text(decided), decided


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str) -> None:
    text, decided = built(family)
    wrong: list[str] = []
    for case in cases(family):
        types = tuple(parse_type(t) for t in case.given.args)
        dims = {name: 3 for t in types for d in t.shape for name in symbols(d)}
        arrays = sample_arrays(case.given, dims)
        expected = bind_value(case.op, dims).reference(*arrays)
        results = expected if isinstance(expected, tuple) else (expected,)
        feeds = {f"a{k}": a for k, a in enumerate(arrays)}
        for order in (0, 1):
            found, _ = run_case(text, decided[case.name], feeds, dims, order=order)
            for k, want in enumerate(results):
                reason = difference(found[f"y{k}"], want) if want.size else ""
                if reason:
                    wrong.append(f"{case.name}, order {order}: {reason}")
    assert not wrong, "\n".join(wrong)


def difference(got: Array, want: Array) -> str:
    """How two arrays differ beyond rounding; empty if they do not."""
    allowed = TOLERANCE.get(want.dtype.name, 0.0)
    if got.dtype != want.dtype:
        return f"{got.dtype}, not {want.dtype}"
    a, b = (np.asarray(x.reshape(want.shape), np.float64) for x in (got, want))
    if np.allclose(a, b, rtol=allowed, atol=allowed, equal_nan=True):
        return ""
    finite = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), a != b)
    return f"off by {np.max(finite)} somewhere in {want.shape}"
