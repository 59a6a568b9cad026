"""Every sample of every op through the CUDA target: legalised, printed, run on the emulator, checked for races.

What its kernels ask of far memory is what MCIR counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.build.device_kernels import Decided, decide, image_text, run_case
from unistack_aot.aicf.bind import bind_value
from unistack_aot.aicf.op import Op
from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.symbolic import evaluate, symbols
from unistack_aot.emulator.counters import LaunchCounters
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.requests import requests
from unistack_aot.ops.op import Sample, TensorOp
from unistack_aot.ops.samples import as_sample, parse_type, sample_arrays
from unistack_aot.targets.cuda.source import grid_of

Array = np.ndarray[Any, Any]
LANES = machine_for_arch("sm_80").lanes
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
            found, counters = run_case(text, decided[case.name], feeds, dims, order=order)
            wrong += [f"{case.name}: {w}" for w in miscounted(decided[case.name], counters, dims)]
            for k, want in enumerate(results):
                reason = difference(found[f"y{k}"], want) if want.size else ""
                if reason:
                    wrong.append(f"{case.name}, order {order}: {reason}")
    assert not wrong, "\n".join(wrong)


def miscounted(
    case: Decided, counters: Sequence[LaunchCounters], dims: Mapping[str, int]
) -> Iterator[str]:
    """Launches that asked for other bytes than MCIR says; where data decides, for more. Atomics count apart."""
    launches = [each for each in case.launches if not empty(each, dims)]
    for launch, one in zip(launches, counters, strict=True):
        asked = requests(launch.kernel, dims, LANES)
        seen = (0 if one.atomics else one.read.bytes, one.store.bytes)
        said = (0 if one.atomics else asked.read, asked.written)
        if seen != said and (asked.exact or any(a > b for a, b in zip(seen, said, strict=True))):
            yield f"{one.kernel} asks for {seen} bytes, not {said}"


def empty(launch: Launch, dims: Mapping[str, int]) -> bool:
    """Whether a launch has no groups, so that it does not happen."""
    return evaluate(grid_of(launch.kernel), dims) == 0


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
