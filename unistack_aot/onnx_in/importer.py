"""ONNX graphs to AICF: nodes, regions and local functions. Not here: what operators mean (ops/)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import onnx
from onnx import AttributeProto

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Input
from unistack_aot.aicf.types import TupleType, Type
from unistack_aot.base.errors import (
    BadModel,
    ExtentsDiffer,
    IllTyped,
    IRError,
    TooFew,
    Unsupported,
)
from unistack_aot.base.symbolic import Dim, Sym, bounds, symbols, text
from unistack_aot.onnx_in.assume import Assumed, assume_equal
from unistack_aot.onnx_in.contradicted import contradicted
from unistack_aot.onnx_in.demands import Demand, demanded
from unistack_aot.onnx_in.dims import Declared, DimTable, input_types
from unistack_aot.onnx_in.order import Numbered, label_of, ordered
from unistack_aot.onnx_in.read import Model, Source, read_model, read_opsets
from unistack_aot.onnx_in.reasons import summary, why_unknown
from unistack_aot.onnx_in.schema import check_node, refuse_unread, too_large
from unistack_aot.onnx_in.scope import Gap, Scope, Session
from unistack_aot.onnx_in.tensors import read_tensor
from unistack_aot.ops.control import refusals
from unistack_aot.ops.onnx import Attributes, Importer, OnnxCall, Subgraph, importer_for

Functions = dict[tuple[str, str, str], onnx.FunctionProto]


@dataclass(frozen=True)
class Report:
    """What the import did: nodes of the model, those no output needs, folded ones, names of
    dimensions, what it had to assume about them and what it demands of them beside (the compiled
    model checks both), and branches that end a run which takes them.

    `operators` are the operators of the model's own nodes by name, `unused` the names of those that
    no output needs, `gone` what an earlier compilation found out about nodes without a kernel,
    `contradicted` what is declared of outputs and is not so.
    """

    onnx_nodes: int
    unused_nodes: int
    folded: int
    dims: dict[str, str]
    assumed: tuple[str, ...]
    demands: tuple[Demand, ...] = ()
    refused: tuple[str, ...] = ()
    operators: Mapping[str, str] = field(default_factory=dict[str, str])
    unused: tuple[str, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict[str, str])
    contradicted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Imported:
    """A model as AICF. `ranges` bounds each symbolic dimension; None: no bound was declared."""

    graph: Graph
    origins: Origins
    opsets: dict[str, int]
    name: str
    ranges: dict[str, tuple[int, int | None]]
    report: Report


def import_model(model: Model, dims: Declared | None = None) -> Imported:
    """Import a path, bytes or ModelProto.

    `dims` fixes dimensions (int) or bounds them (least, greatest). Errors: BadInput, BadModel, or
    Unsupported with every gap at once.
    """
    source = read_model(model)
    graph, session, assumed = settled(source, dims or {})
    table = session.table
    if session.gaps:
        what, hint = summary(source.name, session.gaps)
        raise Unsupported(what, hint=hint)
    operators = {label_of(k, node): node.op_type for k, node in enumerate(source.proto.graph.node)}
    report = Report(
        len(source.proto.graph.node),
        len(source.proto.graph.node) - len(session.live),
        session.folding.folded,
        dict(table.names),
        assumed,
        tuple(session.demands.values()),
        tuple(dict.fromkeys(each.reason for each in refusals(graph))),
        operators,
        tuple(sorted(operators.keys() - set(session.live))),
        contradicted=session.contradicted,
    )
    return Imported(graph, session.origins, source.opsets, source.name, dict(table.ranges), report)


def settled(source: Source, dims: Declared) -> tuple[Graph, Session, tuple[str, ...]]:
    """Import as far as possible, again and again while dimensions turn out to be related."""
    declared, assumed, weights = dict(dims), list[str](), dict[str, Node]()
    DimTable(declared).check_numbers()
    while True:
        table = DimTable(declared)
        try:
            graph, session = attempt(source, table, dims, weights)
        except Assumed as stop:
            declared |= {
                _written(name, declared, table): v for name, v in stop.assumption.declared.items()
            }
            assumed.append(stop.assumption.sentence)
            continue
        table.check_names(dims)
        return graph, session, tuple(assumed)


def _written(name: str, declared: Declared, table: DimTable) -> str:
    """The key under which a dimension is declared already, else its name."""
    return next((key for key, n in table.names.items() if n == name and key in declared), name)


def attempt(
    source: Source, table: DimTable, dims: Declared, weights: dict[str, Node]
) -> tuple[Graph, Session]:
    """One import; what could not be imported is in the session's gaps. Raises Assumed."""
    proto = source.proto.graph
    _refuse_sparse(proto)
    held = {tensor.name: tensor for tensor in proto.initializer}
    inputs = [value for value in proto.input if value.name not in held]
    kinds = list(input_types(inputs, table))
    table.check_names(dims, parts=True)
    functions = {(f.domain, f.name, f.overload): f for f in source.proto.functions}
    session = Session(source.folder, functions, table, weights)
    scope = Scope(session, source.opsets, initializers=held)
    for name, kind in kinds:
        if name in scope.values:
            raise BadModel(f"two inputs are called {name!r}", at=name, hint="export it again")
        if isinstance(kind, Unsupported):
            session.gaps.append(Gap(name, "", 0, kind.what, kind.hint or ""))
            scope.values[name] = None
        elif reason := too_large(kind):
            hint = "make the model's tensors smaller"
            session.gaps.append(Gap(name, "", 0, f"input {name} has {reason}", hint))
            scope.values[name] = None
        else:
            scope.values[name] = Node(Input(name, kind))
    formals = tuple(node for node in scope.values.values() if node is not None)
    names = [value.name for value in proto.output]
    _check_outputs(names, source.name)
    live = ordered(proto.node, names)
    session.live = tuple(label_of(index, node) for index, node in live)
    results = run(scope, live, names)
    outputs = tuple((name, node) for name, node in results if node is not None)
    session.contradicted = tuple(contradicted(proto, {**scope.values, **dict(results)}))
    return Graph(source.name, formals, outputs), session


def _check_outputs(names: list[str], model: str) -> None:
    """BadModel for a model without outputs, or with two of one name."""
    if not names:
        raise BadModel("the model has no outputs", at=model, hint="export it again")
    for name in names:
        if names.count(name) > 1:
            raise BadModel(f"two outputs are called {name!r}", at=name, hint="export it again")


def _refuse_sparse(proto: onnx.GraphProto) -> None:
    if proto.sparse_initializer:
        name = proto.sparse_initializer[0].values.name
        raise Unsupported("a sparse initializer", at=name, hint="export dense weights")


def run(
    scope: Scope, nodes: Iterable[Numbered], results: Sequence[str]
) -> list[tuple[str, Node | None]]:
    """Import ordered nodes into `scope`, and give the results."""
    for index, proto in nodes:
        label = scope.prefix + label_of(index, proto)
        for name, value in zip(proto.output, _outputs(scope, proto, label), strict=False):
            if name:
                scope.define(name, value, label)
    return [(name, scope.find(name, f"output {name}")) for name in results]


def _outputs(scope: Scope, proto: onnx.NodeProto, label: str) -> list[Node | None]:
    """The values of one ONNX node; all None, and a gap noted, if it cannot be imported."""
    args = [scope.find(name, label) if name else None for name in proto.input]
    poisoned = any(
        name and arg is None and name not in scope.omitted
        for name, arg in zip(proto.input, args, strict=True)
    )
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    function = scope.session.functions.get((proto.domain, proto.op_type, proto.overload))
    version = scope.opsets.get(domain, 0)
    absent: list[Node | None] = [None] * len(proto.output)
    if function is not None:
        return absent if poisoned else _call_function(scope, proto, function, args, label)
    importer = importer_for(domain, proto.op_type, version)
    if importer is None:
        reason, hint = why_unknown(domain, proto.op_type, version)
        scope.session.gaps.append(Gap(label, proto.op_type, version, reason, hint))
        return absent
    if poisoned:
        return absent
    check_node(domain, proto, version, label)
    try:
        made = _made(scope, importer, proto, args, label)
        return _traced(scope.session, made, proto, label)
    except _Unfinished:
        return absent
    except Unsupported as refusal:
        prefix = f"{proto.op_type}({version})"
        reason = refusal.what.removeprefix(prefix).strip()
        gap = Gap(label, proto.op_type, version, reason, refusal.hint or "")
        scope.session.gaps.append(gap)
        return absent
    except ExtentsDiffer as fault:
        scope.session.gaps.append(_disagreement(scope.session, fault, proto, label, version))
        return absent
    except TooFew as fault:
        raise IllTyped(
            f"{proto.op_type}({version}) {fault.what}",
            at=label,
            hint=f"it needs {text(fault.extent)} >= {text(fault.least)}; declare other dimensions",
        ) from fault
    except IRError as fault:
        raise IllTyped(
            f"{proto.op_type}({version}): {fault.what}",
            at=label,
            hint="operands do not fit the operator; check the model with onnx.checker",
        ) from fault


def _made(
    scope: Scope,
    importer: Importer,
    proto: onnx.NodeProto,
    args: Sequence[Node | None],
    label: str,
) -> Node | Sequence[Node]:
    """What its importer makes of a node; Unsupported if it has attributes that were not looked at."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    attributes = Attributes(
        {a.name: decoded for a, decoded in _attributes(scope, proto.attribute, label)}
    )
    call = OnnxCall(
        proto.op_type,
        label,
        scope.opsets.get(domain, 0),
        tuple(args),
        attributes,
        len(proto.output),
        scope.session.ranges,
        partial(_need, scope.session, label),
    )
    made = importer(call)
    refuse_unread(domain, call, attributes.unread)
    return made


def _need(session: Session, label: str, extent: Dim, least: Dim, what: str) -> None:
    demand = demanded(extent, least, session.table, label, what)
    if demand is not None:
        session.demands.setdefault(demand.value, demand)


def _disagreement(
    session: Session, fault: ExtentsDiffer, proto: onnx.NodeProto, label: str, version: int
) -> Gap:
    """The gap of a node whose operands agree only for some sizes; Assumed if those can be declared.

    IllTyped if they agree for none.
    """
    left, right = fault.left, fault.right
    assert isinstance(left, int | Sym) and isinstance(right, int | Sym)
    low, high = bounds(left - right, session.ranges)
    names = sorted(symbols(left) | symbols(right))
    if not names or (low is not None and low > 0) or (high is not None and high < 0):
        raise IllTyped(
            f"{proto.op_type}({version}): {fault.what}",
            at=label,
            hint="operands do not fit the operator; check the model with onnx.checker",
        ) from fault
    assumption = assume_equal(left, right, session.table, label, fault.stretches)
    if assumption is not None:
        raise Assumed(assumption)
    hint = f"declare a size for dimension {' or '.join(names)}"
    reason = f"whose operands agree only where {text(left)} = {text(right)}"
    return Gap(label, proto.op_type, version, reason, hint)


def _traced(
    session: Session, made: Node | Sequence[Node], proto: onnx.NodeProto, label: str
) -> list[Node | None]:
    nodes = [made] if isinstance(made, Node) else list(made)
    if any(proto.output[len(nodes) :]):
        names = ", ".join(name for name in proto.output[len(nodes) :] if name)
        raise Unsupported(f"with output {names}", at=label, hint="export without that output")
    folded: list[Node | None] = []
    for node in nodes:
        if reason := too_large(node.type):
            raise Unsupported(f"with {reason}", at=label, hint="make the model's tensors smaller")
        for extent in _extents(node.type):
            low, _ = bounds(extent, session.ranges)
            if low is None or low < 0:
                _need(session, label, extent, 1, "has no elements otherwise")
        value = session.folding.fold(node)
        session.trace(value, label)
        folded.append(value)
    return folded


def _extents(kind: Type) -> tuple[Dim, ...]:
    parts = kind.items if isinstance(kind, TupleType) else (kind,)
    return tuple(extent for part in parts for extent in part.shape)


def _call_function(
    scope: Scope,
    proto: onnx.NodeProto,
    function: onnx.FunctionProto,
    args: list[Node | None],
    label: str,
) -> list[Node | None]:
    """Import a model-local function in place."""
    key = (function.domain, function.name, function.overload)
    if key in scope.calls:
        raise BadModel(f"function {function.name} calls itself", at=label, hint="export it again")
    opsets = read_opsets(function.opset_import, 8, function.name)
    attributes = {a.name: value for a, value in _attributes(scope, function.attribute_proto, label)}
    attributes |= {a.name: value for a, value in _attributes(scope, proto.attribute, label)}
    inner = Scope(
        scope.session,
        {**scope.opsets, **opsets},
        prefix=f"{label}/",
        attributes=attributes,
        calls=(*scope.calls, key),
    )
    inner.values.update(dict.fromkeys(function.input))
    given = [name for name, arg in zip(function.input, args, strict=False) if arg is not None]
    inner.omitted = frozenset(function.input) - set(given)
    inner.values.update(zip(function.input, args, strict=False))
    return [
        node
        for _, node in run(inner, ordered(function.node, function.output), list(function.output))
    ]


def _attributes(
    scope: Scope, protos: Iterable[AttributeProto], label: str
) -> Iterable[tuple[AttributeProto, Any]]:
    for proto in protos:
        if proto.ref_attr_name:
            if proto.ref_attr_name in scope.attributes:
                yield proto, scope.attributes[proto.ref_attr_name]
        else:
            yield proto, _decoded(scope, proto, label)


def _decoded(scope: Scope, proto: AttributeProto, label: str) -> Any:
    match proto.type:
        case AttributeProto.FLOAT:
            return proto.f
        case AttributeProto.INT:
            return proto.i
        case AttributeProto.STRING:
            return proto.s.decode("utf-8", "replace")
        case AttributeProto.FLOATS:
            return tuple(proto.floats)
        case AttributeProto.INTS:
            return tuple(proto.ints)
        case AttributeProto.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in proto.strings)
        case AttributeProto.TENSOR:
            return read_tensor(proto.t, scope.session.folder, label)
        case AttributeProto.GRAPH:
            return _subgraph(scope, proto.g, label)
        case _:
            kind = AttributeProto.AttributeType.Name(proto.type).lower()
            raise Unsupported(f"with attribute {proto.name} of type {kind}", at=label)


def _subgraph(scope: Scope, proto: onnx.GraphProto, label: str) -> Subgraph:
    """A region that can be imported closed or in place, when the importer asks for it."""

    def fill(inner: Scope, formals: tuple[Node, ...]) -> tuple[tuple[str, Node], ...]:
        _refuse_sparse(proto)
        inner.initializers.update({tensor.name: tensor for tensor in proto.initializer})
        names = [v.name for v in proto.input if v.name not in inner.initializers]
        _same_count(names, formals, label)
        inner.values.update(zip(names, formals, strict=True))
        wanted = [value.name for value in proto.output]
        results = run(inner, ordered(proto.node, wanted), wanted)
        if any(node is None for _, node in results):
            raise _Unfinished
        return tuple((name, node) for name, node in results if node is not None)

    def build(given: tuple[Node, ...]) -> tuple[Graph, tuple[Node, ...]]:
        inner, gaps = scope.inside(True, f"{label}/"), scope.session.gaps
        known = len(gaps)
        names = [value.name for value in proto.input]
        _same_count(names, given, label)
        formals = tuple(Node(Input(n, v.tensor)) for n, v in zip(names, given, strict=True))
        try:
            results = fill(inner, formals)
        except IllTyped:
            del gaps[known:]  # the region as a whole is refused
            raise
        outer = tuple(pair[0] for pair in inner.captured.values())
        inputs = (*formals, *(pair[1] for pair in inner.captured.values()))
        return Graph(proto.name, inputs, results), outer

    def inline(given: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(node for _, node in fill(scope.inside(False, f"{label}/"), given))

    return Subgraph(build, inline)


def _same_count(names: Sequence[str], given: Sequence[Node], label: str) -> None:
    if len(names) != len(given):
        fault = f"a region takes {len(names)} inputs, its node gives {len(given)}"
        raise BadModel(fault, at=label, hint="check the model with onnx.checker")


class _Unfinished(Unsupported):
    """A region holds a node that cannot be imported; its own gap says why."""

    def __init__(self) -> None:
        super().__init__("with a region that cannot be imported")
