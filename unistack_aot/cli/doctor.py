"""`unistack-aot doctor [MODEL]`: what cannot be compiled, and which tools are here."""

from __future__ import annotations

import argparse
import ctypes
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from unistack_aot import __version__
from unistack_aot.artifact.manifest import Variant
from unistack_aot.base.environment import cores
from unistack_aot.cli.compile import dims_of
from unistack_aot.cli.face import Face, plural
from unistack_aot.cli.targets import missing_tool
from unistack_aot.onnx_in import Gap, coverage
from unistack_aot.runtime.processor import this_processor
from unistack_aot.targets.cpu.build import LEVELS, compiler, shipped
from unistack_aot.targets.cuda.build import nvcc
from unistack_aot.targets.registry import TARGETS
from unistack_aot.targets.toolchain import Tool

EXAMPLE = "unistack-aot doctor bert.onnx"
PACKAGES = {
    "numpy": "",
    "onnx": "",
    "onnxruntime": "checks fall back to float64 without it: pip install onnxruntime",
    "pycuda": "GPUs and the emulator need it: pip install 'unistack-aot[gpu]' where cuda.h is",
    "openvino": "only compared with: pip install 'unistack-aot[bench]'",
    "ziglang": "a C++ compiler for machines without one: pip install 'unistack-aot[cpu]'",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("model", type=Path, nargs="?", help="an .onnx file to look at")
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZES", help="as for compiling"
    )


def run(options: argparse.Namespace, face: Face) -> int:
    """Examine; 2 if the model cannot be compiled or no target can be built."""
    able = _machine(face)
    if options.model is None:
        return 0 if able else 2
    dims = {
        n: r.low if r.low == r.high else (r.low, r.high) for n, r in dims_of(options.dim).items()
    }
    gaps = coverage(options.model, dims)
    _model(options.model, gaps, face)
    return 0 if able and not gaps else 2


def _machine(face: Face) -> bool:
    """Say what is here; whether any target can be built."""
    python = platform.python_version()
    face.say(f"unistack-aot {__version__}, Python {python}, {platform.machine()}, {cores()} cores")
    rows: list[tuple[str, ...]] = []
    facts: dict[str, object] = {}
    for name in TARGETS:
        reason = missing_tool(name)
        if reason is None:
            tool = _tool(name)
            first = tool.version.splitlines()[_telling(tool)] if tool.version else ""
            rows.append((f"target {name}", "can be built", f"{' '.join(tool.command)}  {first}"))
        else:
            rows.append((f"target {name}", "MISSING", f"{reason.what}; {reason.hint}"))
        facts[name] = None if reason is None else reason.what
    rows.append(("device cpu", "present", f"up to {_level()}"))
    rows.append(("device cuda", *_gpu()))
    for package, purpose in PACKAGES.items():
        try:
            rows.append((f"package {package}", version(package), ""))
        except PackageNotFoundError:
            rows.append((f"package {package}", "absent", purpose))
    face.table(rows)
    found = [dict(zip(("what", "state", "detail"), row, strict=True)) for row in rows]
    face.fact(
        version=__version__,
        python=python,
        executable=sys.executable,
        cores=cores(),
        missing=facts,
        found=found,
    )
    return any(reason is None for reason in facts.values())


def _tool(name: str) -> Tool:
    if name == "cuda":
        return nvcc()
    return compiler(LEVELS[shipped()[-1]])


def _telling(tool: Tool) -> int:
    """The line of a version text that holds the version: nvcc says its release further down."""
    lines = tool.version.splitlines()
    return next((k for k, line in enumerate(lines) if "release" in line), 0)


def _level() -> str:
    """The highest instruction-set level that this processor runs."""
    here = this_processor()
    able = [
        name
        for name, isa in LEVELS.items()
        if here.lacks(Variant(f"cpu:{name}", "", (), (), (), isa.needs)) is None
    ]
    return able[-1] if able else here.architecture


def _gpu() -> tuple[str, str]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "absent", "no NVIDIA driver; packages still build, and run on the emulator"
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "absent", "there is a driver but no GPU"
    return "present", plural(count.value, "GPU")


def _model(model: Path, gaps: list[Gap], face: Face) -> None:
    if not gaps:
        face.say(f"{model.name}: everything in it can be compiled")
    else:
        face.say(f"{model.name}: {plural(len(gaps), 'thing')} cannot be compiled")
        face.table([(f"'{gap.node}'", gap.what, gap.hint) for gap in gaps])
    face.fact(
        model=str(model),
        gaps=[
            {"node": g.node, "op": g.op, "opset": g.version, "reason": g.reason, "hint": g.hint}
            for g in gaps
        ],
    )
