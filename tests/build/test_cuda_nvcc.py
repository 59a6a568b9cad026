"""Generated kernels built by nvcc, for several generations: they compile and spill no registers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from models.catalogue import entry
from unistack_aot.aicf.graph import Graph
from unistack_aot.base.errors import MissingTool
from unistack_aot.lower.driver import lower_graph
from unistack_aot.onnx_in import import_model
from unistack_aot.pipeline import signature_keys
from unistack_aot.rules import apply_rules
from unistack_aot.targets.cuda.build import INCLUDE, cubin_job, nvcc, resources, settled
from unistack_aot.targets.cuda.target import CUDA
from unistack_aot.targets.target import Request, Source
from unistack_aot.targets.toolchain import run_job


@pytest.fixture(autouse=True)
def _needs_nvcc() -> None:
    try:
        nvcc()
    except MissingTool as error:
        pytest.skip(str(error))


@cache
def _imported(model: str) -> tuple[Graph, object, dict[str, tuple[int, int | None]]]:
    imported = import_model(entry(model).load())
    graph, _ = apply_rules(imported.graph, imported.origins)
    return graph, imported.origins, dict(imported.ranges)


def source(model: str, level: str, precision: str) -> Source:
    """The CUDA text of a catalogue model."""
    graph, origins, ranges = _imported(model)
    program, constants = lower_graph(graph, origins)  # type: ignore[arg-type]
    request = Request(f"cuda:{level}", level, precision, ranges)
    scheduled = CUDA.schedule(program, constants, request)
    keys = signature_keys(graph, scheduled.program)
    return CUDA.emit(scheduled.program, request, keys, {name: k for k, name in enumerate(ranges)})


def assert_builds(model: str, level: str, precision: str = "f32") -> None:
    """Every kernel of the model is in the cubin, and none spills."""
    found = source(model, level, precision)
    ((_, text),) = found.files
    built = resources(run_job(cubin_job(level, text)).log)
    assert set(built) == {kernel.symbol for kernel in found.kernels}
    assert not {name: r for name, r in built.items() if r.spilled}


@pytest.mark.parametrize("level", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_generations(level: str) -> None:
    assert_builds("bert_small", level)


def test_equal_text_gives_equal_bytes() -> None:
    text = '#include <ua/kernel.cuh>\nextern "C" __global__ void k(float* y) { y[ua::lane_index()] = 1; }\n'
    jobs = [replace(cubin_job("sm_90", text), salt=salt) for salt in ("first", "second")]
    first, second = (settled(run_job(job).data) for job in jobs)
    assert first == second
    assert str(INCLUDE).encode() not in first


@pytest.mark.parametrize("precision", ["tf32", "f16"])
def test_precisions(precision: str) -> None:
    assert_builds("bert_small", "sm_90", precision)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet_small", "llama_small", "unet_small_dynamic"])
def test_models(model: str) -> None:
    assert_builds(model, "sm_90")
