"""What a model asks of a compiler: operators, their variants, dtypes, dynamic dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

# Attributes whose value decides which implementation is needed, rather than only a size.
TELLING = {
    "AveragePool": ("auto_pad", "ceil_mode", "count_include_pad", "dilations"),
    "Cast": ("to",),
    "Conv": ("auto_pad", "group", "dilations", "strides", "kernel_shape"),
    "ConvTranspose": ("auto_pad", "group", "strides", "output_padding", "kernel_shape"),
    "DequantizeLinear": ("axis",),
    "Gather": ("axis",),
    "Gelu": ("approximate",),
    "Gemm": ("transA", "transB", "alpha", "beta"),
    "GRU": ("direction", "linear_before_reset", "layout"),
    "LSTM": ("direction", "layout", "input_forget"),
    "MaxPool": ("auto_pad", "ceil_mode", "dilations", "strides", "kernel_shape"),
    "Pad": ("mode",),
    "QuantizeLinear": ("axis",),
    "Resize": ("mode", "coordinate_transformation_mode", "nearest_mode"),
    "ScatterND": ("reduction",),
    "Softmax": ("axis",),
    "Split": ("num_outputs",),
    "Trilu": ("upper",),
    "Upsample": ("mode",),
}
DEFAULTS = {
    "auto_pad": "NOTSET",
    "ceil_mode": "0",
    "dilations": "1",
    "group": "1",
    "strides": "1",
    "transA": "0",
    "transB": "0",
    "alpha": "1",
    "beta": "1",
    "input_forget": "0",
    "layout": "0",
}
REDUCED = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2")
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU")
OPTIONAL_INPUTS = {
    "Clip": ("", "min", "max"),
    "Resize": ("", "roi", "scales", "sizes"),
    "Slice": ("", "", "", "axes", "steps"),
    "LSTM": ("", "", "", "bias", "lengths", "h0", "c0", "peephole"),
    "GRU": ("", "", "", "bias", "lengths", "h0"),
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over a model and all its subgraphs."""

    opset: str
    nodes: int
    parameters: int
    ops: Counter[str]
    variants: Counter[str]
    dtypes: Counter[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dynamic: tuple[str, ...]


def summarize(model: ModelProto) -> Summary:
    """Return the summary of a model; subgraph nodes count, marked by their operator alone."""
    ops: Counter[str] = Counter()
    variants: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()
    weights: set[str] = set()
    parameters = 0
    for graph in graphs(model.graph):
        # A nested graph reads weights of the graphs around it, which came before.
        weights |= {tensor.name for tensor in graph.initializer}
        weights |= {node.output[0] for node in graph.node if node.op_type == "Constant"}
        stored = [a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute]
        for tensor in (*graph.initializer, *stored):
            dtypes[TensorProto.DataType.Name(tensor.data_type)] += 1
            parameters += _elements(tensor)
        for value in (*graph.value_info, *graph.input, *graph.output):
            if value.type.HasField("tensor_type"):
                dtypes[TensorProto.DataType.Name(value.type.tensor_type.elem_type)] += 1
        for node in graph.node:
            ops[operator(node)] += 1
            variants.update(f"{operator(node)}({fact})" for fact in _facts(node, weights))
    feeds = model_inputs(model)
    return Summary(
        opset=", ".join(f"{o.domain or 'onnx'} {o.version}" for o in model.opset_import),
        nodes=sum(ops.values()),
        parameters=parameters,
        ops=ops,
        variants=variants,
        dtypes=dtypes,
        inputs=tuple(describe(value) for value in feeds),
        outputs=tuple(describe(value) for value in model.graph.output),
        dynamic=tuple(dict.fromkeys(name for value in feeds for name in _symbols(value))),
    )


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and every graph nested in its nodes' attributes, outermost first."""
    waiting = [graph]
    while waiting:
        current = waiting.pop()
        yield current
        for node in current.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


def operator(node: NodeProto) -> str:
    """Return the operator's name, with its domain unless that is ONNX's own."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def model_inputs(model: ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs a caller feeds: old files also list every weight as an input."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def describe(value: onnx.ValueInfoProto) -> str:
    """Return `name: dtype[dims]` of a graph input or output."""
    kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    dims = ", ".join(
        dim.dim_param or str(dim.dim_value) if dim.WhichOneof("value") else "?"
        for dim in value.type.tensor_type.shape.dim
    )
    return f"{value.name}: {kind}[{dims}]"


def _symbols(value: onnx.ValueInfoProto) -> Iterator[str]:
    for position, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.WhichOneof("value") != "dim_value":
            yield dim.dim_param or f"{value.name}.{position}"
        elif dim.dim_value <= 0:
            yield f"{value.name}.{position} (written as {dim.dim_value})"


def _elements(tensor: TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count


def _facts(node: NodeProto, weights: set[str]) -> Iterator[str]:
    """Yield one text for each property of a node that an implementation must know about."""
    attributes = {a.name: a for a in node.attribute}
    known: list[str] = []
    for name in TELLING.get(node.op_type, ()):
        if name in attributes and (text := _text(attributes[name])) != DEFAULTS.get(name):
            known.append(f"{name} {text}")
    if known:
        yield ", ".join(known)
    names = OPTIONAL_INPUTS.get(node.op_type, ())
    given = [n for n, value in zip(names, node.input, strict=False) if n and value]
    if given:
        yield "inputs " + " ".join(given)
    if node.op_type in REDUCED or node.op_type in ("Squeeze", "Unsqueeze"):
        yield "axes as input" if len(node.input) > 1 else "axes as attribute"
    if node.op_type in WEIGHTED and len(node.input) > 1:
        yield "weight is stored" if node.input[1] in weights else "weight is computed"
    if "kernel_shape" in attributes and len(attributes["kernel_shape"].ints) != 2:
        yield f"{len(attributes['kernel_shape'].ints)} spatial axes"
    pads = list(attributes["pads"].ints) if "pads" in attributes else []
    if pads[: len(pads) // 2] != pads[len(pads) // 2 :]:
        yield "unequal pads " + "x".join(map(str, pads))
    if node.op_type == "MaxPool" and len(node.output) > 1:
        yield "second output used"


def _sides(sizes: list[int]) -> str:
    """Return equal sizes once: 3 for 3 x 3 and for 3, 1x3 where sides differ."""
    return str(sizes[0]) if len(set(sizes)) == 1 else "x".join(map(str, sizes))


def _text(attribute: AttributeProto) -> str:
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "to":
        return TensorProto.DataType.Name(value).lower()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return f"{value:g}"
    if attribute.name == "group":
        return "1" if value == 1 else "many"
    if attribute.name in ("kernel_shape", "strides", "dilations"):
        return _sides(list(value))
    return "x".join(map(str, value)) if attribute.ints else str(value)
