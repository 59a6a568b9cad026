"""Kernels that spill are scheduled again with less in registers; an error names those that cannot be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import onnx
import pytest

from models.builder import GraphBuilder
from tests.build.device_kernels import decide
from unistack_aot.artifact.images import split
from unistack_aot.artifact.reader import open_package
from unistack_aot.base.dtypes import f32
from unistack_aot.base.errors import MissingTool, ToolFailed
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.ops.fold import Reduce
from unistack_aot.pipeline import compile_model
from unistack_aot.stages import Hooks
from unistack_aot.targets import toolchain
from unistack_aot.targets.cuda import parts, target
from unistack_aot.targets.cuda.build import nvcc
from unistack_aot.targets.cuda.parts import pieces
from unistack_aot.targets.cuda.sass import read_back
from unistack_aot.targets.cuda.source import kernel_text
from unistack_aot.targets.cuda.spills import LOOPS
from unistack_aot.targets.target import Avoided, BuiltBadly, Source
from unistack_aot.targets.toolchain import Job, Outcome

ROOT = Path(__file__).parents[2]
TARGET = "cuda:sm_80"


@pytest.fixture(autouse=True)
def _needs_nvcc() -> None:
    try:
        nvcc()
    except MissingTool as error:
        pytest.skip(str(error))


def product() -> onnx.ModelProto:
    """One large matrix product, for which large tiles are best."""
    g = GraphBuilder("product")
    a, b = g.input("a", (2048, 512)), g.input("b", (512, 2048))
    g.output(g.op("MatMul", a, b), "y", (2048, 2048))
    return g.build()


def exponentials(count: int) -> onnx.ModelProto:
    """A map that needs all its operands at once: the sum of exponentials below the largest."""
    g = GraphBuilder("exponentials")
    xs = [g.input(f"x{k}", (256, 1024)) for k in range(count)]
    largest = g.op("Max", *xs)
    g.output(g.op("Sum", *(g.op("Exp", g.op("Sub", x, largest)) for x in xs)), "y", (256, 1024))
    return g.build()


def columns(count: int) -> onnx.ModelProto:
    """All columns of a matrix of two registers per element, each needed twice: they live at once."""
    g = GraphBuilder("columns")
    x = g.input("x", (512, count), "float64")
    each = [g.op("Gather", x, g.constant(k, "int64"), axis=1) for k in range(count)]
    total = each[0]
    for column in each[1:]:
        total = g.op("Max", total, column)
    for column in each:
        total = g.op("Sub", column, total)
    g.output(total, "y", (512,), "float64")
    return g.build()


def tight_text(text: str, threads: int) -> str:
    """Kernels with registers for `threads` threads per unit, even those that ask for all."""

    def limited(found: re.Match[str]) -> str:
        return f"__launch_bounds__({found[1]}, {threads // int(found[1])})"

    return re.sub(r"__launch_bounds__\((\d+)(?:, 1)?\)", limited, text)


def tight(source: Source, threads: int) -> Source:
    """The source with all its kernels tight."""
    ((name, text),) = source.files
    return replace(source, files=((name, tight_text(text, threads)),))


def watching(change: Callable[[Source], Source], seen: list[Source]) -> Hooks:
    """Hooks that replace the source and keep what was built."""

    def watch(stage: str, value: Any, /) -> Any:
        if not stage.startswith("source"):
            return value
        seen.append(value)
        return change(value)

    return Hooks(watch=watch)


def spills(package: Path) -> list[dict[str, str]]:
    """What a package records of spills."""
    with ZipFile(package) as members:
        decided = json.loads(members.read("lock.json"))["decisions"][TARGET]
    return [each for each in decided if each["what"] == "spill"]


def held(source: Source) -> int:
    """Sums per thread of the only tile."""
    (way,) = source.ways.values()
    rows, _, cols = way.rpartition(".")[2].partition("x")
    return int(rows) * int(cols)


def test_a_kernel_that_spills_for_company_gets_all_registers(tmp_path: Path) -> None:
    """The same tile, if registers are left: fewer groups are resident then."""

    def crowded(source: Source) -> Source:
        ((name, text),) = source.files
        return replace(source, files=((name, re.sub(r"(bounds__\(\d+)\)", r"\1, 8)", text)),))

    seen: list[Source] = []
    package = tmp_path / "product.pkg"
    compile_model(product(), package, (TARGET,), hooks=watching(crowded, seen))
    first, last = (source.files[0][1] for source in seen)
    assert seen[0].ways == seen[1].ways
    assert re.sub(r"(bounds__\(\d+), 1\)", r"\1)", last) == first != last
    (spill,) = spills(package)
    assert spill["chosen"] == "all registers that a group can have"
    assert re.match(r"[1-9]\d* bytes spilled with \d+ of 255 registers", spill["because"])


def test_a_lighter_tile_follows_one_that_spills(tmp_path: Path) -> None:
    seen: list[Source] = []
    package = tmp_path / "product.pkg"
    compile_model(product(), package, (TARGET,), hooks=watching(lambda s: tight(s, 1024), seen))
    assert len(seen) > 1
    assert held(seen[-1]) < held(seen[0])
    room, spill = spills(package)
    assert room["chosen"] == "all registers that a group can have"
    (first,), (last,) = seen[0].ways.values(), seen[-1].ways.values()
    assert spill["chosen"].startswith(last)
    assert re.match(rf"[1-9]\d* bytes spilled with {re.escape(first)}", spill["because"])


def test_narrower_loops_follow_loops_that_spill(tmp_path: Path) -> None:
    seen: list[Source] = []
    package = tmp_path / "sums.pkg"
    hooks = watching(lambda s: tight(s, 2048), seen)
    compile_model(exponentials(14), package, (TARGET,), hooks=hooks)
    ways = [*dict.fromkeys(way for source in seen for way in source.ways.values())]
    assert ways[0] == LOOPS[0].name
    assert len(ways) > 1
    assert ways == [way.name for way in LOOPS[: len(ways)]]
    assert spills(package)[-1]["chosen"] == ways[-1]


def test_what_spills_whole_becomes_several_kernels(tmp_path: Path) -> None:
    """More values at once than a thread has registers: fused less, each kernel holds few."""
    seen: list[Source] = []
    package = tmp_path / "columns.pkg"
    compile_model(columns(130), package, (TARGET,), hooks=watching(lambda s: s, seen))
    assert [set(source.ways.values()) for source in seen] == [{way.name} for way in LOOPS]
    assert len(seen[0].kernels) == 1 < len(seen[-1].kernels)
    assert {spill["chosen"] for spill in spills(package)} == {"loops.small"}


@pytest.mark.skipif(find_spec("pycuda") is None, reason="pycuda is not installed")
def test_several_kernels_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator spills nothing, so it is told that every other way did."""
    model, package = tmp_path / "m.onnx", tmp_path / "m.pkg"
    onnx.save(columns(130), model)
    emulated = target._emulated

    def spilling(source: Source, level: str) -> bytes:
        if set(source.ways.values()) == {LOOPS[-1].name}:
            return emulated(source, level)
        ways = [way for way in source.ways.items() if way[1] != LOOPS[-1].name]
        origins = {kernel.symbol: kernel.origins for kernel in source.kernels}
        avoid = tuple(Avoided(origins[symbol], way, "told so") for symbol, way in ways)
        raise BuiltBadly("kernels spill", "the test", "none", avoid)

    monkeypatch.setattr(target, "_emulated", spilling)
    compile_model(str(model), package, ("emulator:sm_80",))
    (variant,) = open_package(package).manifest.variants
    assert len(variant.kernels) > 1
    command = [sys.executable, "-m", "unistack_aot", "check", str(model), str(package)]
    done = subprocess.run(
        [*command, "--device", "emulator"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_kernel_that_spills_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others come from the first build; the package holds every kernel once, and none that spills."""
    g = GraphBuilder("several")
    a, b = g.input("a", (2048, 512)), g.input("b", (512, 2048))
    c = g.op("MatMul", a, b)
    g.output(g.op("Softmax", c, axis=1), "y", (2048, 2048))
    g.output(g.op("Transpose", c, perm=[1, 0]), "z", (2048, 2048))
    ran: list[list[str]] = []
    execute = toolchain._execute

    def executed(job: Job, stops: int) -> Outcome:
        ran.append(re.findall(r"(?m)^UA_KERNEL\((\w+)\)", job.sources[0][1].decode()))
        return execute(job, stops)

    def tight_product(source: Source) -> Source:
        ((name, text),) = source.files
        head, kernels = pieces(text)
        done = [p.text if p.symbol != "k0" else tight_text(p.text, 1024) for p in kernels]
        return replace(source, files=((name, head + "".join(done)),))

    seen: list[Source] = []
    monkeypatch.setenv("UA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "_execute", executed)
    monkeypatch.setattr(parts, "MOST", 2)
    package = tmp_path / "several.pkg"
    compile_model(g.build(), package, (TARGET,), hooks=watching(tight_product, seen))
    names = [kernel.symbol for kernel in seen[-1].kernels]
    assert len(seen) > 1
    assert len(names) == 3
    assert sorted(ran[:2]) == [["k0", "k1"], ["k2"]]
    # without k0, what was beside it; then only k0, until it fits
    assert sorted(ran[2:]) == [["k0"]] * (len(seen) - 1) + [["k1"]]
    with ZipFile(package) as members:
        code = members.read("cuda/sm_80.cubin")
    held = [kernel.symbol for image in split(code) for kernel in read_back(image)]
    assert sorted(held) == names
    assert all(kernel.stack == 0 for kernel in read_back(code))


def test_the_last_loops_are_not_unrolled() -> None:
    params = (Param("x", f32, (8192, 24)), Param("y", f32, (8192,), Access.OUT))
    (launch,) = decide(Reduce("sum", (1,), False).lower(params[:1], params[1:]), "k").launches
    first, last = (kernel_text("k", launch.kernel, {}, (), way) for way in (LOOPS[0], LOOPS[-1]))
    assert (first.way, last.way) == (LOOPS[0].name, LOOPS[-1].name)
    assert last.definition.count("UA_UNROLL_NOT") == last.definition.count("for (") == 1
    lines = [line for line in last.definition.splitlines() if "UA_UNROLL_NOT" not in line]
    assert first.definition.splitlines() == lines


def test_without_a_limit_nothing_is_built_twice(tmp_path: Path) -> None:
    seen: list[Source] = []
    compile_model(product(), tmp_path / "p.pkg", (TARGET,), hooks=watching(lambda s: s, seen))
    assert len(seen) == 1


def test_a_kernel_without_another_way_is_named_with_its_nodes(tmp_path: Path) -> None:
    seen: list[Source] = []
    hooks = watching(lambda s: replace(tight(s, 1024), ways={"k0": LOOPS[-1].name}), seen)
    with pytest.raises(ToolFailed, match=r"kernel k0 spills \d+ bytes") as error:
        compile_model(product(), tmp_path / "product.pkg", (TARGET,), hooks=hooks)
    assert error.value.at is not None and "MatMul" in error.value.at
    assert [", 1) k0" in source.files[0][1] for source in seen] == [False, True]
    assert not (tmp_path / "product.pkg").exists()
