"""AICF from text: graphs as text.py prints them, and the short expressions of rule examples."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np

from unistack_aot.aicf.graph import Graph, Origins
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, ArrayData, Constant, Input, Op, snake_case
from unistack_aot.aicf.types import TensorType, TupleType, Type
from unistack_aot.base import symbolic
from unistack_aot.base.dtypes import parse_dtype
from unistack_aot.base.errors import BadInput
from unistack_aot.ir.tokens import Token, tokens_of

_TOKEN = re.compile(
    r"(?P<space>\s+|\#\s[^\n]*)"
    r"|(?P<hash>\#[0-9a-f]+)"
    r"|(?P<number>(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|\d+)(?![A-Za-z_]))"
    r'|(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<quoted>'(?:[^'\\]|\\.)*')"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<mark>//|[-+*%(),=:;~{}\[\]])"
)
_FROM = re.compile(r"[ \t]*# from ([^\n]*)")
_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}
_DTYPES = frozenset(
    ["f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"]
)
_OPERATORS = ("+", "-", "*", "//", "%")


def parse_graph(source: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """The graph a text stands for; `constants` resolves hashes. BadInput shows the line."""
    reader = _Reader(source, tuple(tokens_of(source, _TOKEN, _bad)), dict(constants or {}))
    graph = reader.graph()
    reader.expect("end")
    return graph


def parse_traced(
    source: str, constants: Mapping[str, Array] | None = None
) -> tuple[Graph, Origins]:
    """A graph, and the ONNX nodes that its comments (`# from "name"`) say values come from."""
    reader = _Reader(source, tuple(tokens_of(source, _TOKEN, _bad)), dict(constants or {}))
    graph = reader.graph()
    reader.expect("end")
    return graph, reader.origins


def parse_example(source: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """A graph from statements without a header: `%h = neg(%x: f32[2]); mul(%h, %h)`.

    Statements end with `;`; those that name nothing are outputs; an input states its type where
    it occurs first (it may repeat it). `constant ~7 : f32[3]` is a constant of seeded values.
    """
    reader = _Reader(source, tuple(tokens_of(source, _TOKEN, _bad)), dict(constants or {}))
    outputs: list[Node] = []
    while not reader.sees("end"):
        found = reader.statement()
        if found is not None:
            outputs.append(found)
        if not reader.take(";"):
            break
    reader.expect("end")
    named = tuple((f"y{k}", node) for k, node in enumerate(outputs))
    return Graph("example", tuple(reader.scope.inputs), named)


def _records() -> dict[str, type]:
    """Attribute classes by the name text gives them: the records that modules of operations see."""
    modules = {cls.__module__ for cls in Op.registry.values()}
    seen = [value for name in modules for value in vars(sys.modules[name]).values()]
    classes = [v for v in seen if isinstance(v, type) and is_dataclass(v)]
    return {snake_case(cls.__name__): cls for cls in classes if not issubclass(cls, Op)}


def _bad(source: str, at: int, why: str) -> BadInput:
    line = source.count("\n", 0, at) + 1
    shown = source.splitlines()[line - 1] if source.splitlines() else ""
    return BadInput(
        f"AICF text: {why}", at=f"line {line}: {shown.strip()}", hint="see docs/aicf.md"
    )


@dataclass
class _Scope:
    """Names of one graph."""

    values: dict[str, Node] = field(default_factory=dict[str, Node])
    inputs: list[Node] = field(default_factory=list[Node])


class _Reader:
    """A cursor over tokens; one method per construct."""

    def __init__(
        self,
        source: str,
        tokens: tuple[Token, ...],
        constants: dict[str, Array],
    ) -> None:
        self.source, self.tokens, self.at = source, tokens, 0
        self.constants = constants
        self.scope = _Scope()
        self.origins = Origins()

    def fail(self, why: str) -> NoReturn:
        raise _bad(self.source, self.tokens[self.at].at, why)

    def sees(self, word: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == "end" if word == "end" else token.word == word

    def take(self, word: str) -> bool:
        found = self.sees(word)
        self.at += found and word != "end"
        return found

    def expect(self, word: str) -> None:
        if not self.take(word):
            self.fail(f"{word!r} expected, not {self.tokens[self.at].word!r}")

    def next(self, *kinds: str) -> Token:
        token = self.tokens[self.at]
        if token.kind not in kinds:
            self.fail(f"{' or '.join(kinds)} expected, not {token.word!r}")
        self.at += 1
        return token

    def label(self) -> str:
        token = self.next("word", "string", "number")
        return json.loads(token.word) if token.kind == "string" else token.word

    def graph(self) -> Graph:
        self.expect("graph")
        name, outer, self.scope = self.label(), self.scope, _Scope()
        self.expect("(")
        while not self.take(")"):
            self.expect("%")
            self.declared(self.label())
            self.take(",")
        self.expect("{")
        while not self.sees("return"):
            if self.statement() is not None:
                self.fail("a statement of a graph names its value")
        self.expect("return")
        outputs: list[tuple[str, Node]] = []
        while not self.take("}"):
            key = self.label()
            self.expect("=")
            outputs.append((key, self.operand()))
            self.take(",")
        inputs, self.scope = tuple(self.scope.inputs), outer
        return Graph(name, inputs, tuple(outputs))

    def declared(self, name: str) -> Node:
        self.expect(":")
        kind = self.type()
        if not isinstance(kind, TensorType):
            self.fail("an input is a tensor")
        node = Node(Input(name, kind))
        if self.scope.values.setdefault(name, node) is not node:
            self.fail(f"%{name} has another type elsewhere")
        if node not in self.scope.inputs:
            self.scope.inputs.append(node)
        return node

    def statement(self) -> Node | None:
        """`%name = value` binds and gives None; a bare value is given back."""
        start = self.at
        if self.take("%"):
            name = self.label()
            if self.take("="):
                value = self.scope.values[name] = self.operand()
                self.origins.add(value, self.comment())
                return None
            self.at = start
        return self.operand()

    def comment(self) -> tuple[str, ...]:
        """The names in a comment `# from "a", "b"` right after the last token."""
        last = self.tokens[self.at - 1]
        found = _FROM.match(self.source, last.at + len(last.word))
        try:
            return tuple(map(str, json.loads(f"[{found[1]}]"))) if found else ()
        except ValueError:
            return ()

    def operand(self) -> Node:
        if self.take("%"):
            name = self.label()
            if self.sees(":"):
                return self.declared(name)
            if name not in self.scope.values:
                self.fail(f"%{name} has no value yet")
            return self.scope.values[name]
        name = self.next("word").word
        return self.constant() if name == "constant" else self.applied(name)

    def applied(self, name: str) -> Node:
        cls = Op.registry.get(name)
        if cls is None:
            self.fail(f"there is no op {name}")
        self.expect("(")
        args: list[Node] = []
        while not self.take(")"):
            args.append(self.operand())
            self.take(",")
        given = self.attributes()
        node = Node(self.made(cls, given), tuple(args))
        if self.take(":"):
            stated = self.type()
            if stated != node.type:
                self.fail(f"{name} is {node.type}, not {stated}")
        return node

    def made(self, cls: type, given: dict[str, Any]) -> Any:
        try:
            return cls(**given)
        except TypeError as fault:
            self.fail(str(fault))

    def attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.tokens[self.at].kind == "word" and self.tokens[self.at + 1].word == "=":
            key = self.next("word").word
            self.expect("=")
            found[key] = self.value()
        return found

    def constant(self) -> Node:
        data = self.array(":")
        return Node(Constant(data))

    def array(self, before_type: str) -> ArrayData:
        start = self.at
        seed = self.take("~")
        if seed:
            values: list[Any] = [int(self.next("number").word)]
        elif self.tokens[self.at].kind == "hash":
            values = [self.next("hash").word[1:]]
        else:
            given = self.value()
            values = list(given) if isinstance(given, tuple) else [given]
        self.expect(before_type)
        kind = self.type()
        if not isinstance(kind, TensorType) or any(not isinstance(d, int) for d in kind.shape):
            self.fail("a constant has a fixed shape")
        if self.tokens[start].kind == "hash":
            if values[0] not in self.constants:
                self.fail(f"the array #{values[0]} is not given")
            return ArrayData.of(self.constants[values[0]])
        shape = tuple(d for d in kind.shape if isinstance(d, int))
        if seed:
            rng = np.random.default_rng(values[0])
            return ArrayData.of(rng.standard_normal(shape).astype(kind.dtype.numpy))
        array = np.asarray(values).astype(kind.dtype.numpy)
        flat = np.repeat(array, prod(shape)) if array.size == 1 else array
        return ArrayData.of(flat.reshape(shape))

    def type(self) -> Type:
        if self.take("("):
            items: list[TensorType] = []
            while not self.take(")"):
                item = self.type()
                assert isinstance(item, TensorType)
                items.append(item)
                self.take(",")
            return TupleType(tuple(items))
        dtype = parse_dtype(self.next("word").word)
        self.expect("[")
        dims: list[Any] = []
        while not self.take("]"):
            dims.append(self.number())
            self.take(",")
        return TensorType(dtype, tuple(dims))

    def listed(self) -> tuple[Any, ...]:
        items: list[Any] = []
        while not self.take("]"):
            items.append(self.value())
            self.take(",")
        return tuple(items)

    def value(self) -> Any:
        """An attribute's value, see `written` in text.py."""
        token = self.tokens[self.at]
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)].word
        if self.take("["):
            return self.listed()
        if token.kind == "string":
            return self.label()
        if token.kind == "word":
            if token.word == "graph" and following not in (*_OPERATORS, ",", "]", ")"):
                return self.graph()
            if token.word in _WORDS or token.word in _DTYPES:
                self.at += 1
                return _WORDS[token.word] if token.word in _WORDS else parse_dtype(token.word)
            if following == "(" and token.word not in ("min", "max"):
                return self.record()
        return self.number()

    def record(self) -> Any:
        name = self.next("word").word
        self.expect("(")
        if name == "array":
            data = self.array(",")
            self.expect(")")
            return data
        cls = _records().get(name)
        if cls is None:
            self.fail(f"there is no attribute type {name}")
        given: dict[str, Any] = {}
        while not self.take(")"):
            key = self.next("word").word
            self.expect("=")
            given[key] = self.value()
            self.take(",")
        return self.made(cls, given)

    def number(self) -> Any:
        """A float, or an integer expression over dimensions."""
        start = self.at
        negative = self.take("-")
        token = self.tokens[self.at]
        if token.word in ("inf", "nan") or (token.kind == "number" and not token.word.isdigit()):
            self.at += 1
            return -float(token.word) if negative else float(token.word)
        self.at = start
        self.term()
        while self.tokens[self.at].word in _OPERATORS:
            self.at += 1
            self.term()
        last = self.tokens[self.at - 1]
        piece = self.source[self.tokens[start].at : last.at + len(last.word)]
        try:
            return symbolic.parse(piece)
        except ValueError as fault:
            self.fail(str(fault))

    def term(self) -> None:
        """Skip one operand of an integer expression; symbolic.parse reads it."""
        while self.take("-"):
            pass
        if self.tokens[self.at].kind == "word" and self.tokens[self.at + 1].word == "(":
            self.at += 1
        if not self.take("("):
            self.next("number", "word", "quoted")
            return
        depth = 1
        while depth:
            if self.sees("end"):
                self.fail("a bracket is not closed")
            depth += self.sees("(") - self.sees(")")
            self.at += 1
