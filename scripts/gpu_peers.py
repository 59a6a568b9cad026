"""Operations that every library has: as ONNX models for us to compile, and timed in torch and CuPy.

python scripts/gpu_peers.py models FOLDER     writes OPERATION.onnx, and OPERATION.precisions beside it
python scripts/gpu_peers.py times --out FILE  median seconds per operation and library, where these are installed
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx

# Run as a file, this script's folder would answer to the name of the package it imports.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.builder import GraphBuilder

RUNS = 20
PRECISIONS = ("f32", "tf32", "f16", "bf16")


@dataclass(frozen=True)
class Sizes:
    """The extents of all operations; `side` is a matrix's."""

    side: int

    @property
    def matrix(self) -> tuple[int, int]:
        """Square."""
        return (self.side, self.side)

    @property
    def image(self) -> tuple[int, int, int, int]:
        """Eight images of many channels."""
        return (8, max(8, self.side // 16), max(8, self.side // 64), max(8, self.side // 64))

    @property
    def heads(self) -> tuple[int, int, int, int]:
        """One batch of attention heads."""
        return (1, 16, max(16, self.side // 2), 64)


def main(arguments: list[str]) -> int:
    """Write the models, or the times as JSON (it says which library is absent)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("models", "times"))
    parser.add_argument("folder", type=Path, nargs="?", default=Path("."))
    parser.add_argument("--out", type=Path, default=Path("peers.json"))
    parser.add_argument("--side", type=int, default=4096, help="rows and columns of the matrices")
    options = parser.parse_args(arguments)
    sizes = Sizes(options.side)
    if options.what == "models":
        write_models(options.folder, sizes)
        return 0
    found: dict[str, object] = {}
    for name, measure in (("torch", torch_times), ("cupy", cupy_times)):
        try:
            found[name] = (
                measure(import_module(name), sizes) if find_spec(name) else "not installed"
            )
        except Exception as error:  # a library without its own parts must not hide the others
            found[name] = f"{type(error).__name__}: {error}"
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))
    return 0


# --- our side ---------------------------------------------------------------------------------------------


def write_models(folder: Path, sizes: Sizes) -> None:
    """One model per operation; matrix operations are compiled in every precision."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make, precisions in (
        ("matmul", matmul, PRECISIONS),
        ("conv3x3", conv3x3, PRECISIONS),
        ("attention", attention, PRECISIONS),
        ("softmax", softmax, PRECISIONS[:1]),
        ("transpose", transpose, PRECISIONS[:1]),
        ("add", add, PRECISIONS[:1]),
    ):
        onnx.save(make(sizes), str(folder / f"{name}.onnx"))
        (folder / f"{name}.precisions").write_text("\n".join(precisions) + "\n")


def matmul(sizes: Sizes) -> onnx.ModelProto:
    """a b of square matrices."""
    g = GraphBuilder("matmul")
    a, b = (g.input(name, sizes.matrix) for name in "ab")
    g.output(g.op("MatMul", a, b), "y", sizes.matrix)
    return g.build()


def conv3x3(sizes: Sizes) -> onnx.ModelProto:
    """A 3 x 3 convolution that keeps the image's size."""
    g = GraphBuilder("conv3x3")
    channels = sizes.image[1]
    weight = g.normal("w", (channels, channels, 3, 3), 0.05)
    y = g.op("Conv", g.input("x", sizes.image), weight, pads=[1, 1, 1, 1])
    g.output(y, "y", sizes.image)
    return g.build()


def attention(sizes: Sizes) -> onnx.ModelProto:
    """softmax(q k' / 8) v of many heads."""
    g = GraphBuilder("attention")
    q, k, v = (g.input(name, sizes.heads) for name in "qkv")
    scores = g.op(
        "MatMul", g.op("Mul", q, g.constant(0.125)), g.op("Transpose", k, perm=[0, 1, 3, 2])
    )
    g.output(g.op("MatMul", g.op("Softmax", scores, axis=-1), v), "y", sizes.heads)
    return g.build()


def softmax(sizes: Sizes) -> onnx.ModelProto:
    """Of every row."""
    g = GraphBuilder("softmax")
    g.output(g.op("Softmax", g.input("x", sizes.matrix), axis=-1), "y", sizes.matrix)
    return g.build()


def transpose(sizes: Sizes) -> onnx.ModelProto:
    """Of a square matrix."""
    g = GraphBuilder("transpose")
    g.output(g.op("Transpose", g.input("x", sizes.matrix), perm=[1, 0]), "y", sizes.matrix)
    return g.build()


def add(sizes: Sizes) -> onnx.ModelProto:
    """Of two matrices: what far memory gives."""
    g = GraphBuilder("add")
    a, b = (g.input(name, sizes.matrix) for name in "ab")
    g.output(g.op("Add", a, b), "y", sizes.matrix)
    return g.build()


# --- the others -------------------------------------------------------------------------------------------


def torch_times(torch: ModuleType, sizes: Sizes) -> dict[str, float]:
    """Seconds of every operation and precision, by device events."""

    def clock(work: Callable[[], object]) -> float:
        def once() -> float:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e-3

        return _median(once)

    attend = torch.nn.functional.scaled_dot_product_attention
    convolve = torch.nn.functional.conv2d
    times: dict[str, float] = {}
    kinds = {
        "f32": torch.float32,
        "tf32": torch.float32,
        "f16": torch.float16,
        "bf16": torch.bfloat16,
    }
    for label, dtype in kinds.items():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = label == "tf32"

        def drawn(shape: tuple[int, ...], dtype: Any = dtype) -> Any:
            return torch.randn(*shape, device="cuda").to(dtype)

        a, b, x = drawn(sizes.matrix), drawn(sizes.matrix), drawn(sizes.image)
        weight = drawn((sizes.image[1], sizes.image[1], 3, 3))
        q, k, v = (drawn(sizes.heads) for _ in "qkv")
        times[f"matmul.{label}"] = clock(lambda a=a, b=b: a @ b)
        times[f"conv3x3.{label}"] = clock(lambda x=x, w=weight: convolve(x, w, padding=1))
        times[f"attention.{label}"] = clock(lambda q=q, k=k, v=v: attend(q, k, v))
    y, z = (torch.randn(*sizes.matrix, device="cuda") for _ in range(2))
    times["softmax.f32"] = clock(lambda: torch.softmax(y, -1))
    times["transpose.f32"] = clock(lambda: y.t().contiguous())
    times["add.f32"] = clock(lambda: y + z)
    return times


def cupy_times(cupy: ModuleType, sizes: Sizes) -> dict[str, float]:
    """Seconds of matmul (f32, f16), transpose and add."""

    def clock(work: Callable[[], object]) -> float:
        def once() -> float:
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            work()
            end.record()
            end.synchronize()
            return cupy.cuda.get_elapsed_time(start, end) * 1e-3

        return _median(once)

    times: dict[str, float] = {}
    for label, dtype in (("f32", cupy.float32), ("f16", cupy.float16)):
        a, b = (cupy.random.randn(*sizes.matrix, dtype=cupy.float32).astype(dtype) for _ in "ab")
        times[f"matmul.{label}"] = clock(lambda a=a, b=b: a @ b)
    y, z = (cupy.random.randn(*sizes.matrix, dtype=cupy.float32) for _ in range(2))
    times["transpose.f32"] = clock(lambda: cupy.ascontiguousarray(y.T))
    times["add.f32"] = clock(lambda: y + z)
    return times


def _median(once: Callable[[], float]) -> float:
    once()
    return statistics.median(once() for _ in range(RUNS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
