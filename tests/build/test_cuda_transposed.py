"""Transposed convolutions of symbolic sizes in tiles: right values, bytes as MCIR counts them, no bank conflicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.build.device_kernels import decide, image_text, run_case
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.symbolic import Ranges, evaluate
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.mcir.counts import count
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.mcir.requests import requests
from unistack_aot.ops.convolve import ConvolveTranspose
from unistack_aot.ops.samples import parse_type
from unistack_aot.ops.window import sliding

LANES = machine_for_arch("sm_80").lanes
APART = ConvolveTranspose(sliding((2, 2), (2, 2)))
OVERLAPPING = ConvolveTranspose(sliding((3, 3), (2, 2), (), (1, 1), (1, 1)), extra=(1, 1))
SIZES = ({"N": 1, "H": 8, "W": 8}, {"N": 3, "H": 5, "W": 7})


def transposed(
    op: ConvolveTranspose, real: str, arch: str, precision: str, top: int | None
) -> tuple[Any, Any]:
    """The op on x[N, 16, H, W] with 32 filters, sizes of up to `top`, as it is realised; and the filters."""
    x = parse_type(f"{real}[N, 16, H, W]")
    shape = (16, 32, *op.window.kernel)
    w = np.random.default_rng(3).standard_normal(shape).astype(x.dtype.numpy)
    args = Param("a0", x.dtype, x.shape), Param("a1", x.dtype, shape)
    result = op.infer(x, parse_type(f"{real}{list(shape)}"))
    assert isinstance(result, TensorType)
    out = Param("y0", result.dtype, result.shape, Access.OUT)
    ranges: Ranges = dict.fromkeys("NHW", (1, top))
    return decide(op.lower(args, (out,)), "k", arch, precision, {"a1": w}, ranges), w


@pytest.mark.parametrize("op", [APART, OVERLAPPING], ids=["apart", "overlapping"])
@pytest.mark.parametrize("top", [None, 1 << 16], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_120"])
@pytest.mark.parametrize(
    ("real", "precision", "limit"),
    [("f16", "f32", 2e-3), ("f32", "f16", 2e-3), ("f32", "bf16", 2e-2)],
)
def test_in_tiles(
    op: ConvolveTranspose, top: int | None, arch: str, real: str, precision: str, limit: float
) -> None:
    if arch == "sm_75" and precision == "bf16":
        pytest.skip("sm_75 has matrix instructions for f16 only")
    case, w = transposed(op, real, arch, precision, top)
    (launch,), (text,) = case.launches, case.texts
    assert text.way.startswith("mma.")
    assert ("int64_t dim_N" in text.definition) == (top is not None)
    for dims in SIZES:
        x = np.random.default_rng(4).standard_normal((dims["N"], 16, dims["H"], dims["W"]))
        x = x.astype(w.dtype)
        found, (seen,) = run_case(image_text({"k": case}), case, {"a0": x}, dims)
        want = np.asarray(op.reference(x.astype(np.float64), w.astype(np.float64)))
        assert np.max(np.abs(found["y0"] - want)) / np.max(np.abs(want)) < limit
        asked, counted = requests(launch.kernel, dims, LANES), count(launch.kernel)
        assert (seen.read.bytes, seen.store.bytes) == (asked.read, asked.written)
        moved = tuple(evaluate(each, dims) for each in (counted.read, counted.written))
        assert (seen.unique_read, seen.unique_written) == moved
        assert seen.conflicts == 0
        assert seen.mma > 0
