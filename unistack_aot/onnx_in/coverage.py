"""The coverage report: everything in a model that cannot be compiled, all at once."""

from __future__ import annotations

from unistack_aot.onnx_in.dims import Declared
from unistack_aot.onnx_in.importer import settled
from unistack_aot.onnx_in.read import Model, read_model
from unistack_aot.onnx_in.scope import Gap

__all__ = ["Gap", "coverage"]


def coverage(model: Model, dims: Declared | None = None) -> list[Gap]:
    """Gaps in node order; empty if the model can be compiled. BadModel where it is malformed."""
    _, session, _ = settled(read_model(model), dims or {})
    return session.gaps
