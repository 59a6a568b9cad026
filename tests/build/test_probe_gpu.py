"""GPU probes without a GPU: built per generation, proven in SASS, checked on the emulator."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from probe_suite import run, toolchain
from probe_suite.gpu.device import build_and_prove
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.probe import Probe, Setting
from probe_suite.probes import PROBES
from unistack_aot.base.errors import MissingTool

GPU_PROBES = [probe for probe in PROBES if probe.kind == "gpu"]
GENERATIONS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
# A probe's kernels differ in parameters only: the first one stands for all in the quick tests.
QUICK_BUILD = ("gpu_stride", "gpu_mma", "gpu_copy_async")
QUICK_RUN = ("gpu_stride", "gpu_banks", "gpu_barrier")


def tools_missing() -> str | None:
    try:
        for tool in ("nvcc", "cuobjdump", "nvdisasm"):
            toolchain.cuda_tool(tool)
    except MissingTool as error:
        return str(error.what)
    return None


WHY_NO_BUILD = tools_missing()
needs_nvcc = pytest.mark.skipif(WHY_NO_BUILD is not None, reason=str(WHY_NO_BUILD))
WHY_NO_RUN = next(
    (
        f"{what} is not installed"
        for what, here in (("g++", shutil.which("g++")), ("pycuda", find_spec("pycuda")))
        if here is None
    ),
    "",
)
needs_emulator = pytest.mark.skipif(bool(WHY_NO_RUN), reason=WHY_NO_RUN)


def named(names: tuple[str, ...]) -> list[Probe]:
    return [probe for probe in GPU_PROBES if probe.name in names]


@needs_nvcc
@pytest.mark.parametrize("probe", named(QUICK_BUILD), ids=lambda probe: probe.name)
def test_kernel_holds_the_instruction_it_times(probe: Probe, tmp_path: Path) -> None:
    kernel = probe.kernels[0]
    _, seen = build_and_prove(kernel, "sm_90", tmp_path)
    assert seen.count >= kernel.least


@needs_nvcc
def test_kernel_without_its_instruction_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "plain.cu"
    source.write_text('extern "C" __global__ void plain(float* x) { x[0] = 1.0f; }\n')
    kernel = GpuKernel(source, "plain", r"\bHMMA\b", 1)
    with pytest.raises(toolchain.InstructionMissing, match="'plain' holds 0 of 1"):
        build_and_prove(kernel, "sm_80", tmp_path)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("arch", GENERATIONS)
@pytest.mark.parametrize("probe", GPU_PROBES, ids=lambda probe: probe.name)
def test_every_kernel_on_every_generation(probe: Probe, arch: str, tmp_path: Path) -> None:
    for kernel in probe.kernels:
        if kernel.offered(arch):
            build_and_prove(kernel, arch, tmp_path)


def emulate(probe: Probe, arch: str, folder: Path) -> None:
    device = f"emulator:{arch}"
    found = run.run_one(probe, Setting(device, arch, folder, {}, quick=True), limit_s=300)
    assert found.state == "done", found.why
    assert found.findings == (), "an emulator has no speed to report"


@needs_emulator
@pytest.mark.parametrize("probe", named(QUICK_RUN), ids=lambda probe: probe.name)
def test_kernel_computes_and_moves_what_is_predicted(probe: Probe, tmp_path: Path) -> None:
    emulate(probe, "sm_80", tmp_path)


@needs_emulator
@pytest.mark.slow
@pytest.mark.parametrize(
    "probe", [p for p in GPU_PROBES if p.name not in QUICK_RUN], ids=lambda probe: probe.name
)
def test_every_other_kernel_on_the_emulator(probe: Probe, tmp_path: Path) -> None:
    emulate(probe, "sm_90", tmp_path)


@needs_emulator
def test_generation_without_the_instruction_is_skipped(tmp_path: Path) -> None:
    (probe,) = named(("gpu_copy_async",))
    device = "emulator:sm_75"
    found = run.run_one(probe, Setting(device, "sm_75", tmp_path, {}, quick=True), limit_s=300)
    assert (found.state, found.why) == ("skipped", "sm_75 has no asynchronous copy")
