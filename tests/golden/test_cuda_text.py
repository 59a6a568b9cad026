"""The CUDA text of three small kernels, reviewed like code. Rewrite with --update-golden."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.build.device_kernels import decide, image_text
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.op import TensorOp
from unistack_aot.ops.pointwise import Add
from unistack_aot.ops.samples import parse_type
from unistack_aot.ops.softmax import Softmax

KERNELS: dict[str, tuple[TensorOp, tuple[str, ...]]] = {
    "map": (Add(), ("f32[rows, 64]", "f32[64]")),
    "rows": (Softmax(1), ("f32[64, 256]",)),
    "tiles": (Contract("ac", "cb", "ab"), ("f32[rows, 64]", "f32[64, 96]")),
}


@pytest.mark.parametrize("name", KERNELS)
def test_text(name: str, update_golden: bool) -> None:
    op, types = KERNELS[name]
    kinds = tuple(parse_type(t) for t in types)
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(kinds))
    result = op.infer(*kinds)
    out = Param("y0", result.dtype, result.shape, Access.OUT)  # type: ignore[union-attr]
    text = image_text({name: decide(op.lower(args, (out,)), name)})
    kept = Path(__file__).parent / f"cuda_{name}.cu"
    if update_golden:
        kept.write_text(text)
    assert text == kept.read_text()
