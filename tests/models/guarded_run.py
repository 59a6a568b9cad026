"""Runs one model whose inputs lie between pages that no one may touch: an access outside of them ends the process.

Not here: what is asserted (test_guards.py).
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import unistack_aot as ua
from models.catalogue import Feeds, entry
from models.judged import ranges

NO_ACCESS = 0  # PROT_NONE of mprotect(2)
PIECES = "pieces"  # not in the catalogue: rows joined from several inputs, shorter than a vector
_KEPT: list[mmap.mmap] = []


def guarded(array: np.ndarray[Any, Any], at_end: bool) -> np.ndarray[Any, Any]:
    """A copy that begins right after a forbidden page, or ends right before one."""
    page = mmap.PAGESIZE
    pages = -(-max(1, array.nbytes) // page)
    block = mmap.mmap(-1, (pages + 2) * page)
    _KEPT.append(block)
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    for fence in (start, start + (pages + 1) * page):
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(fence), page, NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = page + (pages * page - array.nbytes if at_end else 0)
    copy = np.frombuffer(block, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


def pieces() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Rows of 15 joined from 3, 4, 4 and 4: each lane of a vector reads its own input."""
    widths = {"a": 3, "b": 4, "c": 4, "d": 4}
    shapes = {name: [3, 2, 8, width] for name, width in widths.items()}
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    joined = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2, 8, 15])
    node = helper.make_node("Concat", list(widths), ["y"], "join", axis=3)
    graph = helper.make_graph([node], PIECES, values, [joined])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    random = np.random.default_rng(3)
    return model, [{n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}]


def main(name: str, target: str) -> None:
    """Compile, then run every case with guarded inputs; equal bytes to a run without guards."""
    if name == PIECES:
        model, cases = pieces()
        dims: dict[str, tuple[int, int]] = {}
    else:
        model, cases = entry(name).load(), [entry(name).feeds(case) for case in entry(name).cases]
        dims = ranges(entry(name), model)
    with TemporaryDirectory() as folder:
        package = Path(folder) / "model.pkg"
        ua.compile_model(model, package, (target,), dims)
        session = ua.load(package, device="cpu")
        for feeds in cases:
            wanted = session.run(feeds)
            for at_end in (False, True):
                found = session.run({key: guarded(value, at_end) for key, value in feeds.items()})
                for key, value in wanted.items():
                    np.testing.assert_array_equal(found[key], value, key)
    print("inside")


if __name__ == "__main__":
    main(*sys.argv[1:])
