"""The backend tests of the installed onnx package as cases: a model, inputs, expected outputs.

Operands that decide extents (a shape, axes, a number of elements) are inputs in these tests; they
can be made constants, as exporters write them. Not here: compiling and judging (node_judged.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.defs
from numpy.typing import NDArray
from onnx import compose, helper, numpy_helper
from onnx.backend.test.loader import DATA_DIR, load_model_tests

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]
STORED = ("pytorch-converted", "pytorch-operator", "simple")
OPERATORS = frozenset(schema.name for schema in onnx.defs.get_all_schemas())
SMALL, FEW = 16, 4  # elements of an operand that may decide extents: of integers, of floats


@dataclass(frozen=True, slots=True)
class NodeCase:
    """One test: a model and one or more runs of it; `constants` are inputs that were made constants.

    `without` says why there is nothing to run (inputs or outputs that are no tensors).
    """

    name: str
    model: onnx.ModelProto
    runs: tuple[tuple[Arrays, Arrays], ...]
    rtol: float
    atol: float
    constants: tuple[str, ...] = ()
    without: str = ""

    @property
    def subject(self) -> str:
        """The operator that its name begins with (the longest such one), else that of its first node."""
        written = self.name.removeprefix("test_").replace("_", "").lower()
        fitting = [name for name in OPERATORS if written.startswith(name.lower())]
        first = self.model.graph.node[0].op_type if self.model.graph.node else "none"
        return max(fitting, key=len, default=first)

    @property
    def plain(self) -> bool:
        """Whether it can share a model with others: one run, no regions, no functions."""
        regions = (a.HasField("g") for node in self.model.graph.node for a in node.attribute)
        return len(self.runs) == 1 and not self.model.functions and not any(regions)

    def fixed(self) -> NodeCase | None:
        """The case with its small integer operands as constants; None if that changes nothing."""
        if self.constants or len(self.runs) != 1:
            return None
        ((feeds, wants),) = self.runs
        chosen = tuple(
            value.name
            for k, value in enumerate(self.model.graph.input)
            if k and value.name in feeds and _decides(feeds[value.name])
        )
        if not chosen:
            return None
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        kept = [v for v in model.graph.input if v.name not in chosen]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.graph.initializer.extend(numpy_helper.from_array(feeds[k], k) for k in chosen)
        left = {k: v for k, v in feeds.items() if k not in chosen}
        return NodeCase(self.name, model, ((left, wants),), self.rtol, self.atol, chosen)


def _decides(array: Array) -> bool:
    """Whether an operand may be a shape, axes, a number of elements, scales or a fill."""
    if array.dtype.kind == "f":
        return array.size <= FEW
    return array.dtype.kind in "iub" and array.size <= SMALL


def node_cases(words: Sequence[str] = ()) -> list[NodeCase]:
    """All cases whose names hold one of the words, in the order of their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the references of some operators divide by zero
        made = load_model_tests(kind="node")
    found = [
        _case(each.name, each.model, each.data_sets or (), each.rtol, each.atol)
        for each in made
        if each.model is not None and _named(each.name, words)
    ]
    found += [case for kind in STORED for case in _stored(kind, words)]
    return sorted(found, key=lambda case: case.name)


def _named(name: str, words: Sequence[str]) -> bool:
    return not words or any(word in name for word in words)


def _stored(kind: str, words: Sequence[str]) -> Iterator[NodeCase]:
    """Cases that lie in the package as files."""
    for each in load_model_tests(kind=kind):
        folder = Path(DATA_DIR) / kind / each.name
        if not _named(each.name, words) or not (folder / "model.onnx").exists():
            continue
        model = onnx.load(str(folder / "model.onnx"))
        sets = [
            (_protos(data, "input"), _protos(data, "output"))
            for data in sorted(folder.glob("test_data_set_*"))
        ]
        yield _case(each.name, model, sets, each.rtol, each.atol)


def _protos(folder: Path, what: str) -> list[Any]:
    paths = sorted(folder.glob(f"{what}_*.pb"), key=lambda p: int(p.stem.partition("_")[2]))
    return [onnx.TensorProto.FromString(path.read_bytes()) for path in paths]


def _case(
    name: str, model: onnx.ModelProto, sets: Sequence[Any], rtol: float, atol: float
) -> NodeCase:
    held = {tensor.name for tensor in model.graph.initializer}
    inputs = [v.name for v in model.graph.input if v.name not in held]
    outputs = [v.name for v in model.graph.output]
    try:
        runs = tuple((_arrays(inputs, given), _arrays(outputs, want)) for given, want in sets)
    except TypeError as reason:
        return NodeCase(name, model, (), rtol, atol, without=str(reason))
    return NodeCase(name, model, runs, rtol, atol)


def _arrays(names: Sequence[str], values: Sequence[Any]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, value in zip(names, values, strict=False):
        given = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
        if not isinstance(given, np.ndarray | np.generic | float | int):
            raise TypeError(f"{name} is no tensor")
        found[name] = np.asarray(given)
    return found


def packed_cases(cases: Mapping[str, NodeCase]) -> tuple[onnx.ModelProto, Arrays]:
    """One model of several plain cases of one opset, named by prefix, and its inputs."""
    parts = [compose.add_prefix(case.model, f"{prefix}_") for prefix, case in cases.items()]
    graph = helper.make_graph(
        [node for part in parts for node in part.graph.node],
        "cases",
        [value for part in parts for value in part.graph.input],
        [value for part in parts for value in part.graph.output],
        [tensor for part in parts for tensor in part.graph.initializer],
    )
    model = helper.make_model(
        graph, opset_imports=parts[0].opset_import, ir_version=parts[0].ir_version
    )
    feeds = {f"{p}_{k}": a for p, case in cases.items() for k, a in case.runs[0][0].items()}
    return model, feeds
