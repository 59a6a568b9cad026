"""Products of bf16 on the CPU: dot products where this processor has them, AMX's tiles in software, whole models."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from models.catalogue import entry
from unistack_aot.artifact.reader import open_package
from unistack_aot.check.checker import check
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime import processor
from unistack_aot.targets.cpu import build
from unistack_aot.targets.cpu.build import FLAGS, INCLUDE, LEVELS, level_flags

PROGRAM = Path(__file__).with_name("cpu_bf16.cpp")
DOT, AMX = "x86-64-v4-bf16", "x86-64-v4-amx"
SOFTWARE = replace(
    LEVELS[AMX], needs=LEVELS[DOT].needs, features=(*LEVELS[DOT].features, "-DUA_TILES_IN_SOFTWARE")
)
"""The AMX level with its tiles as arrays: the same schedule, nest and packing, on any processor with AVX512-BF16."""
here = processor.this_processor().features
needs_dots = pytest.mark.skipif(
    "avx512_bf16" not in here, reason="this processor has no AVX512-BF16"
)


def built(isa: build.Isa, folder: Path) -> Path:
    tool = build.compiler(isa)
    out = folder / "program"
    flags = [flag for flag in FLAGS if flag not in ("-fPIC", "-fvisibility=hidden")]
    command = [*tool.command, *flags, *level_flags(tool, isa), f"-I{INCLUDE}", "-pthread"]
    done = subprocess.run(
        [*command, str(PROGRAM), "-o", str(out)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return out


def machine_code(binary: Path) -> str:
    command = ["objdump", "-d", "--no-show-raw-insn", str(binary)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


@needs_dots
@pytest.mark.parametrize("isa", [LEVELS[DOT], SOFTWARE], ids=["dot", "tiles-in-software"])
def test_products_of_all_shapes(isa: build.Isa, tmp_path: Path) -> None:
    """Rows, columns and depths that fill no tile, runs that fill no vector, cut depths."""
    done = subprocess.run([built(isa, tmp_path)], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stdout
    assert "8 shapes, 0 wrong" in done.stdout


def test_the_amx_level_is_made_of_its_instructions(tmp_path: Path) -> None:
    program = built(LEVELS[AMX], tmp_path)
    text = machine_code(program)
    for instruction in ("ldtilecfg", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"):
        assert re.search(rf"\b{instruction}\b", text), instruction
    if "amx_bf16" in here:
        assert subprocess.run([program], check=False).returncode == 0


def test_the_bf16_level_multiplies_pairs(tmp_path: Path) -> None:
    code = machine_code(built(LEVELS[DOT], tmp_path))
    # a tile of 14 rows of two panels multiplies 28 vectors in each of 16 unrolled steps
    assert len(re.findall(r"\bvdpbf16ps\b.*%zmm", code)) >= 14 * 2 * 16


@needs_dots
@pytest.mark.parametrize("isa", [LEVELS[DOT], SOFTWARE], ids=["dot", "tiles-in-software"])
@pytest.mark.parametrize(
    ("name", "products"),
    [("resnet_small", 9), ("bert_small_dynamic", 6), ("llama_small", 6), ("unet_small_dynamic", 6)],
)
def test_models(
    name: str, products: int, isa: build.Isa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every product of a model that tiles compute is of bf16, and the model's outputs are right."""
    monkeypatch.setitem(build.LEVELS, isa.name, isa)
    given, package, target = entry(name), tmp_path / "model.pkg", f"cpu:{isa.name}"
    model = given.load()
    compile_model(model, package, targets=(target,), dims=given.dims(model), precision="bf16")
    decisions = open_package(package).document("lock.json")["decisions"][target]
    taken = [d["chosen"] for d in decisions if d["what"] == "instruction"]
    assert set(taken) == {"dot.panel16" if isa.name == DOT else "amx.panel16"}
    assert len(taken) >= products
    if isa is SOFTWARE:
        monkeypatch.setitem(processor._LEVELS, isa.name, frozenset())
    for case in given.cases:
        verdict = check(model, package, "cpu", feeds=given.feeds(case))
        assert verdict, (case, verdict.results)
