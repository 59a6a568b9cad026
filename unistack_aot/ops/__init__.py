"""The vocabulary: one class per meaning, one file per family. Not here: rewrites (rules/), loops (schedule/).

Importing this package registers every family; a test fails if a file of this folder is not named here.
"""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "core",
    "pointwise",
    "trigonometric",
    "compare",
    "convert",
    "activation",
    "reindex",
    "slices",
    "pad",
    "positions",
    "resize",
    "gather",
    "scatter",
    "order",
    "scan",
    "recurrent",
    "recurrent_layers",
    "control",
    "fold",
    "softmax",
    "window",
    "contract",
    "convolve",
    "normalise",
    "attention",
    "einsum",
    "quant",
    "heads",
    "signal",
)

for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")
