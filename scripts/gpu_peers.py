"""Times a few operations of torch and CuPy on the GPU, where they are installed, to set our own
times beside.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

SIZE, ROWS, COLUMNS, WORDS = 4096, 4096, 4096, 1 << 28
RUNS = 20


def main(arguments: list[str]) -> int:
    """Write median seconds per operation and library as JSON; says which library is absent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    found: dict[str, object] = {}
    for name, measure in (("torch", torch_times), ("cupy", cupy_times)):
        found[name] = measure(import_module(name)) if find_spec(name) else "not installed"
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))
    return 0


def torch_times(torch: ModuleType) -> dict[str, float]:
    """Return seconds of matmul (f32, tf32, f16, bf16), softmax and copy."""

    def clock(work: Callable[[], object]) -> float:
        def once() -> float:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e-3

        return _median(once)

    times: dict[str, float] = {}
    for label, dtype, tf32 in (
        ("f32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("f16", torch.float16, False),
        ("bf16", torch.bfloat16, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn(SIZE, SIZE, device="cuda").to(dtype) for _ in range(2))
        times[f"matmul {label} {SIZE}"] = clock(lambda a=a, b=b: a @ b)
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    times[f"softmax f32 {ROWS}x{COLUMNS}"] = clock(lambda: torch.softmax(x, -1))
    y = torch.randn(WORDS, device="cuda")
    times[f"copy f32 {WORDS}"] = clock(y.clone)
    return times


def cupy_times(cupy: ModuleType) -> dict[str, float]:
    """Return seconds of matmul (f32, f16) and copy."""

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
        a, b = (cupy.random.randn(SIZE, SIZE, dtype=cupy.float32).astype(dtype) for _ in range(2))
        times[f"matmul {label} {SIZE}"] = clock(lambda a=a, b=b: a @ b)
    y = cupy.random.randn(WORDS, dtype=cupy.float32)
    times[f"copy f32 {WORDS}"] = clock(y.copy)
    return times


def _median(once: Callable[[], float]) -> float:
    once()
    return statistics.median(once() for _ in range(RUNS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
