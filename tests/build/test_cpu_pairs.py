"""Products of 16-bit pairs on the CPU: integers on every level, bf16 by dot products and AMX's tiles, whole models."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from models.catalogue import entry
from tests.build.cpu_graphs import levels_here
from tests.build.test_cpu_narrow import node
from tests.ops.single_node import expected
from unistack_aot.artifact.manifest import Variant
from unistack_aot.artifact.reader import open_package
from unistack_aot.check.checker import check
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime import processor
from unistack_aot.runtime.session import load
from unistack_aot.targets.cpu import build
from unistack_aot.targets.cpu.build import FLAGS, INCLUDE, LEVELS, level_flags

PROGRAM = Path(__file__).with_name("cpu_pairs.cpp")
DOT, AMX = "x86-64-v4-bf16", "x86-64-v4-amx"
SOFTWARE = replace(
    LEVELS[AMX], needs=LEVELS[DOT].needs, features=(*LEVELS[DOT].features, "-DUA_TILES_IN_SOFTWARE")
)
"""The AMX level with its tiles as arrays: the same schedule, nest and packing, on any processor with AVX512-BF16."""
here = processor.this_processor().features
needs_dots = pytest.mark.skipif(
    "avx512_bf16" not in here, reason="this processor has no AVX512-BF16"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[build.Isa], Path]:
    """The program for a level, built once."""
    folder = tmp_path_factory.mktemp("pairs")
    return cache(lambda isa: _built(isa, folder / f"program{len(list(folder.iterdir()))}"))


def _built(isa: build.Isa, out: Path) -> Path:
    tool = build.compiler(isa)
    flags = [flag for flag in FLAGS if flag not in ("-fPIC", "-fvisibility=hidden")]
    if "-mavx512bf16" in isa.features:
        flags.append("-DUA_PRODUCTS_OF_BF16")
    command = [*tool.command, *flags, *level_flags(tool, isa), f"-I{INCLUDE}", "-pthread"]
    done = subprocess.run(
        [*command, str(PROGRAM), "-o", str(out)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return out


def machine_code(binary: Path) -> str:
    command = ["objdump", "-d", "--no-show-raw-insn", str(binary)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


@pytest.mark.parametrize(
    "isa",
    [
        pytest.param(LEVELS["x86-64-v2"], marks=pytest.mark.slow),
        LEVELS["x86-64-v3"],
        pytest.param(LEVELS["x86-64-v4"], marks=pytest.mark.slow),
        LEVELS[DOT],
        SOFTWARE,
    ],
    ids=["v2", "v3", "v4", "dot", "tiles-in-software"],
)
def test_products_of_all_shapes(isa: build.Isa, built: Callable[[build.Isa], Path]) -> None:
    """Rows, columns and depths that fill no tile, runs that fill no vector, cut depths; sums of integers wrap."""
    level = DOT if isa is SOFTWARE else isa.name
    if processor.this_processor().lacks(Variant(f"cpu:{level}", "", (), (), ())):
        pytest.skip(f"this processor does not run {level}")
    done = subprocess.run([built(isa)], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stdout
    assert "8 shapes, 0 wrong" in done.stdout


def test_the_amx_level_is_made_of_its_instructions(built: Callable[[build.Isa], Path]) -> None:
    program = built(LEVELS[AMX])
    text = machine_code(program)
    for instruction in ("ldtilecfg", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"):
        assert re.search(rf"\b{instruction}\b", text), instruction
    # A configuration on the stack may be half written: compilers do not know that the instruction reads all of it.
    assert not re.search(r"\bldtilecfg\b(?!.*\(%rip\))", text)
    if "amx_bf16" in here:
        assert subprocess.run([program], check=False).returncode == 0


def test_tiles_are_moved_with_the_compilers_knowledge() -> None:
    """Every move of a tile says that it touches memory, which the compilers' own intrinsics do not."""
    text = (INCLUDE / "ua" / "amx.h").read_text()
    assert "_tile_" not in text
    moves = re.findall(r'asm volatile\("(?:ldtilecfg|tileloadd|tilestored).*\n?', text)
    assert len(moves) == 3
    assert all('"memory"' in move for move in moves)


def test_the_bf16_level_multiplies_pairs(built: Callable[[build.Isa], Path]) -> None:
    code = machine_code(built(LEVELS[DOT]))
    # a tile of 14 rows of two panels multiplies 28 vectors in each of 16 unrolled steps
    assert len(re.findall(r"\bvdpbf16ps\b.*%zmm", code)) >= 14 * 2 * 16


@needs_dots
@pytest.mark.parametrize("isa", [LEVELS[DOT], SOFTWARE], ids=["dot", "tiles-in-software"])
@pytest.mark.parametrize(
    ("name", "products"),
    [
        ("resnet_small", 9),
        pytest.param("bert_small_dynamic", 6, marks=pytest.mark.slow),
        ("llama_small", 6),
        pytest.param("unet_small_dynamic", 6, marks=pytest.mark.slow),
    ],
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


def test_integers_multiply_in_tiles(tmp_path: Path) -> None:
    """Quantised convolutions, dense and depthwise, and products: the very integers of onnxruntime."""
    rng, images = np.random.default_rng(5), {"x": [1, 20, 9, 11], "p": ["n", 40]}

    def held(name: str, *shape: int, dtype: type[np.generic] = np.int8) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.integers(-100, 100, shape).astype(dtype), name)

    scales = {"s": np.float32(0.05), "t": np.float32(0.01), "r": np.float32(2.5)}
    zeros = {"zx": np.uint8(7), "zw": np.int8(0), "zy": np.uint8(90)}
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in (scales | zeros).items()]
    weights += [held("w", 24, 20, 3, 3), held("v", 17, 24, 3, 3), held("d", 24, 1, 3, 3)]
    weights += [held("q", 40, 33), held("b", 24, dtype=np.int32)]
    nodes = [
        node("QLinearConv", "x s zx w t zw r zy b", "a", pads=[1, 1, 1, 1]),
        node("ConvInteger", "a v zy zw", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("ConvInteger", "a d zy zw", "e", pads=[1, 1, 1, 1], group=24),
        node("QLinearMatMul", "p s zx q t zw r zy", "m"),
    ]
    values = [
        helper.make_tensor_value_info(k, onnx.TensorProto.UINT8, v) for k, v in images.items()
    ]
    kinds = {"a": "UINT8", "c": "INT32", "e": "INT32", "m": "UINT8"}
    outputs = [
        helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), None)
        for name, kind in kinds.items()
    ]
    graph = helper.make_graph(nodes, "quantised", values, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    package, target = tmp_path / "model.pkg", f"cpu:{levels_here()[-1]}"
    compile_model(model, package, targets=(target,), dims={"n": (1, 50)})
    text = str(open_package(package).document("lock.json")["decisions"][target])
    assert text.count(" rows x ") >= 3  # blocks of two convolutions and a product
    for count in (1, 50):
        shapes = ((1, 20, 9, 11), (count, 40))
        feeds = {
            k: rng.integers(0, 256, s).astype(np.uint8) for k, s in zip(images, shapes, strict=True)
        }
        found = load(package, "cpu", threads=2, poison=True).run(feeds)
        for name, want in zip(kinds, expected(model, feeds), strict=True):
            np.testing.assert_array_equal(found[name], want, err_msg=name)
