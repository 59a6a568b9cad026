"""Generated kernels built by nvcc, for several generations: they spill nothing and hold the instructions they claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.catalogue import SMALL
from tests.build.cubins import NETWORKS, PRECISIONS, faults, shipped
from unistack_aot.base.errors import MissingTool
from unistack_aot.targets.cuda.build import GENERATIONS, INCLUDE, cubin_job, nvcc, settled
from unistack_aot.targets.toolchain import run_job


@pytest.fixture(autouse=True)
def _needs_nvcc() -> None:
    try:
        nvcc()
    except MissingTool as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("level", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_generations(level: str) -> None:
    assert not faults("bert_small", level)


def test_equal_text_gives_equal_bytes() -> None:
    kernels = [
        f'extern "C" __global__ void k{k}(float* y) {{ y[ua::lane_index()] = {k}; }}\nUA_KERNEL(k{k})\n'
        for k in range(9)
    ]
    job = cubin_job("sm_90", "#include <ua/kernel.cuh>\n\n" + "\n".join(kernels))
    jobs = [replace(job, salt=salt) for salt in ("first", "second")]
    first, second = (settled(run_job(job).data) for job in jobs)
    assert first == second
    assert str(INCLUDE).encode() not in first


@pytest.mark.parametrize("precision", ["tf32", "f16"])
def test_precisions(precision: str) -> None:
    assert not faults("bert_small", "sm_90", precision)


@pytest.mark.slow
@pytest.mark.parametrize("level", GENERATIONS)
@pytest.mark.parametrize("precision", ["tf32", "f16", "bf16"])
@pytest.mark.parametrize("top", [None, 1 << 16], ids=["32 bits", "64 bits"])
def test_convolutions_of_symbolic_sizes_run_in_tiles(
    top: int | None, level: str, precision: str
) -> None:
    """From 8 channels on, transposed ones too: the choices of the cost model stand, since none spills for good."""
    if level == "sm_75" and precision != "f16":
        pytest.skip("sm_75 has matrix instructions for f16 only")
    source, _ = shipped("unet_small_dynamic", level, precision, top)
    ways = {
        name.removesuffix("/conv"): source.ways[kernel.symbol].partition(".")[0]
        for kernel in source.kernels
        for name, _, op in (origin.rpartition("/") for origin in kernel.origins)
        if op in ("Conv", "ConvTranspose")
    }
    wide = ["/down1/0", "/down1/1", "/bottom/0", "/bottom/1", "/up1", "/up1/0", "/up1/1", "/up0"]
    assert {name: ways[name] for name in wide} == dict.fromkeys(wide, "mma")


@pytest.mark.slow
@pytest.mark.parametrize("model", [each.name for each in SMALL])
def test_models(model: str) -> None:
    """Every small model on one generation."""
    assert not faults(model, "sm_90")


@pytest.mark.slow
@pytest.mark.parametrize("level", [level for level in GENERATIONS if level != "sm_90"])
@pytest.mark.parametrize("model", NETWORKS)
def test_each_generation(model: str, level: str) -> None:
    """One model of each kind on the other generations."""
    assert not faults(model, level)


@pytest.mark.slow
@pytest.mark.parametrize(("level", "precision"), PRECISIONS)
@pytest.mark.parametrize("model", NETWORKS)
def test_each_precision(model: str, level: str, precision: str) -> None:
    """One model of each kind through the matrix units."""
    assert not faults(model, level, precision)
