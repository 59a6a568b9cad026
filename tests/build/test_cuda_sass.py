"""Machine code is read back: which instructions, registers and source lines a cubin holds; what --dump writes of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models.catalogue import entry
from unistack_aot.artifact.manifest import Kernel
from unistack_aot.base.errors import MissingTool
from unistack_aot.cli.main import main
from unistack_aot.targets.cuda import sass
from unistack_aot.targets.cuda.build import nvcc
from unistack_aot.targets.registry import TARGETS
from unistack_aot.targets.target import Request, Source

TEXT = """#include <ua/kernel.cuh>

extern "C" __global__ void __launch_bounds__(256) plain(const float* __restrict__ x, float* __restrict__ y) {
  UA_DYNAMIC_SHARED(shared);
  float* const near = reinterpret_cast<float*>(shared);
  const ua::Vector<float, 4> four = ua::load<4>(x + threadIdx.x * 4);
  near[threadIdx.x] = four[0] * four[1] + four[2];
  __syncthreads();
  y[threadIdx.x] = near[threadIdx.x ^ 1];
}
UA_KERNEL(plain)
extern "C" __global__ void __launch_bounds__(1024, 2) crowded(float* y, int turns) {
  float held[64];
  UA_UNROLL
  for (int i = 0; i < 64; i++) held[i] = y[i * 64 + threadIdx.x];
  for (int turn = 0; turn < turns; turn++)
    UA_UNROLL
    for (int i = 0; i < 64; i++) held[i] = held[i] * held[(i * 7 + 3) % 64] + held[(i + 11) % 64];
  UA_UNROLL
  for (int i = 0; i < 64; i++) y[i * 64 + threadIdx.x] = held[i];
}
UA_KERNEL(crowded)
"""


def why_not() -> str | None:
    """Why machine code cannot be made and read here, if so."""
    try:
        nvcc()
    except MissingTool as error:
        return str(error.what)
    missing = [name for name in ("cuobjdump", "nvdisasm") if sass.binary_tool(name) is None]
    return f"{missing[0]} is not installed" if missing else None


WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


def built() -> tuple[Source, bytes]:
    kernels = (
        Kernel("plain", (), ("1", "1", "1"), ("256", "1", "1"), shared_bytes="1024"),
        Kernel("crowded", (), ("1", "1", "1"), ("1024", "1", "1")),
    )
    source = Source((("kernels.cu", TEXT),), kernels, (), (), ())
    request = Request("cuda:sm_90", "sm_90", "f32", {})
    one = Source(source.files, kernels[:1], (), (), ())  # a spilling kernel would be refused
    return source, TARGETS["cuda"].build(one, request, lambda *_: None)


def test_instructions_registers_and_spills() -> None:
    _, cubin = built()
    crowded, plain = sass.read_back(cubin)
    assert (crowded.symbol, plain.symbol) == ("crowded", "plain")
    wanted = {"LDG.128": 1, "FFMA": 1, "LDS": 1, "STG": 1, "BAR": 1}
    assert {kind: plain.kinds.get(kind, 0) for kind in wanted} == wanted
    assert plain.stack == 0 < plain.registers < 32
    assert crowded.registers <= 32
    assert crowded.stack > 0 < crowded.kinds["LDL, STL"]


def test_every_line_of_the_text_leads_to_its_instructions() -> None:
    source, cubin = built()
    listings = TARGETS["cuda"].listings(source, cubin, "sm_90", intermediate=True)
    texts = dict(listings.files)
    assert set(texts) == {"kernels.ptx", "plain.sass", "crowded.sass"}
    assert ".target sm_90" in texts["kernels.ptx"]
    line = TEXT.splitlines().index("  __syncthreads();") + 1
    after = texts["plain.sass"].split(f"// kernels.cu:{line}  __syncthreads();\n")[1]
    assert re.match(r"\s*/\*[0-9a-f]+\*/\s+BAR", after)
    load = re.search(
        r"// ua/memory\.cuh:\d+  .*\n(?:\s+/\*.*\n)*?\s+/\*.*LDG\.E\.128", texts["plain.sass"]
    )
    assert load is not None
    assert not re.search(r"//.*\s/\w+/", texts["plain.sass"]), "a path of this machine"
    header, *rows = listings.table
    assert header[:4] == ("kernel", "registers", "stack", "shared")
    assert [(row[0], row[3]) for row in rows] == [("crowded", "0"), ("plain", "1024")]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(entry("lstm_small").load().SerializeToString())
    return path


def dumped(model: Path, *more: str) -> dict[str, str]:
    folder = model.parent / "stages"
    words = [str(model), "-o", str(model.parent / "m.pkg"), "--target", "cuda:sm_80", "--no-golden"]
    assert main([*words, "--no-check", "--quiet", "--dump", str(folder), *more]) == 0
    return {
        path.name: path.read_text() for path in folder.iterdir() if path.suffix != ".safetensors"
    }


def test_dump_writes_text_ptx_and_sass(model: Path) -> None:
    stages = dumped(model, "--ptx")
    kernels = re.findall(r"UA_KERNEL\((\w+)\)", stages["20-cuda-sm_80-kernels.cu"])
    assert kernels
    assert "21-cuda-sm_80-kernels.ptx" in stages
    for symbol in kernels:
        assert "EXIT" in stages[f"22-cuda-sm_80-{symbol}.sass"]
    facts = stages["30-cuda-sm_80.facts.txt"].splitlines()
    assert [line.split()[0] for line in facts[2:]] == kernels
    listed = [line.split()[0] for line in stages["index.txt"].splitlines()]
    assert {name for name in stages if name[:2] in ("20", "21", "22", "30")} <= set(listed)


def test_the_index_says_what_is_missing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "binary_tool", lambda _: None)
    stages = dumped(model)
    assert not [name for name in stages if name.startswith(("21", "22"))]
    assert (
        "not written: no tool that lists machine code (cuobjdump) was found; pip install"
        in stages["index.txt"]
    )


def test_ptx_needs_a_folder(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(model), "--ptx"]) == 2
    assert "--ptx without --dump" in capsys.readouterr().err
