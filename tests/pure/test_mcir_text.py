"""MCIR text reads back as the same kernels: every node, awkward dtypes, shared values, faults."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistack_aot.base.dtypes import ALL, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import minimum, symbol
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import (
    Cast,
    Index,
    Load,
    Name,
    Scalar,
    call,
    index_value,
    literal,
    where,
)
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.nodes import (
    Access,
    Attend,
    Axis,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Let,
    Loop,
    Param,
    Role,
    Space,
    Span,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    View,
    When,
)
from unistack_aot.mcir.parse import parse_body, parse_kernel
from unistack_aot.mcir.program import (
    Buffer,
    Carried,
    HostCopy,
    HostIf,
    HostLoop,
    HostRefuse,
    Kind,
    Launch,
    Program,
    Sliced,
)
from unistack_aot.mcir.program_parse import parse_program
from unistack_aot.mcir.text import print_body, print_kernel, program_text

R, J, K, M, N = (symbol(name) for name in "ijkmN")
X = Param("x", f32, (N, 8))
Y = Param("y", f32, (N, 8), Access.OUT)
ROWS, COLS = Span("m", 16 * R, minimum(16, N - 16 * R)), Span("n", 0, 8)


def assert_reads_back(kernel: Kernel) -> str:
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert again == kernel
    assert print_kernel(again) == text
    return text


def of(*body: Stmt, params: tuple[Param, ...] = (X, Y)) -> Kernel:
    return Kernel(params, body)


def x_at(*index: object) -> Load:
    return Load("x", index, f32)


def v(name: str) -> Name:
    return Name(name, f32)


INSIDE = index_value(M + J) < 5
NODES: dict[str, tuple[Stmt, ...]] = {
    "let": (Let("t", x_at(R, 0)), Store("y", (R, 0), v("t"))),
    "combining stores": tuple(
        Store("y", (R, 0), x_at(R, 0), how) for how in ("set", "add", "mul", "min", "max")
    ),
    "data-dependent store": (Store("y", (Load("ids", (R,), i64), J), x_at(R, J)),),
    "fold": (Fold(("s",), "sum", (Axis("j", 8), Axis("k", N)), (x_at(K, J),), (), Role.LANE),),
    "nested folds": (
        Fold(
            ("top", "total"),
            "softmax",
            (Axis("j", N),),
            (v("d") * 0.125,),
            (Fold(("d",), "sum", (Axis("k", 8),), (x_at(R, K) * x_at(J, K),)),),
        ),
        Store("y", (R, 0), v("top") + v("total")),
    ),
    "two values": (Fold(("best", "at"), "argmax", (Axis("j", 8),), (x_at(R, J), Index(J, i64))),),
    "loops": (
        Loop("i", N, (Loop("j", 8, (Store("y", (R, J), x_at(R, J)),), Role.VECTOR),), Role.GRID, 4),
    ),
    "two in a loop": (Loop("i", N, (Sync(), Sync())),),
    "empty loop": (Loop("i", N, ()),),
    "stream": (Stream("k", N, 32, 3, (Store("y", (K, 0), x_at(K, 0)),)),),
    "tiles": (
        Tile("a", bf16, (16, 8), Space.NEAR),
        Tile("r", f32, (16, N), Space.REG, 0.0),
        Tile("low", f32, (1,), Space.FAR, -math.inf),
        Store("a", (0, 0), literal(1, bf16)),
        Store("low", (0,), literal(2, f32) + Load("low", (0,), f32)),
    ),
    "fill": (Fill("a", ROWS, COLS, View("x", (M, symbol("n")), INSIDE)),),
    "contract": (
        Contract(
            "acc",
            View("x", (M, K), INSIDE),
            View("w", (K, symbol("n"))),
            ROWS,
            COLS,
            (Axis("k", 4), Axis("j", 2)),
            "mma.m16n8k16",
            (64, 32, 16),
        ),
        Contract("acc", View("x", (M, 0)), View("w", (0, 0)), ROWS, COLS, (), "odd name"),
    ),
    "drain": (
        Tile("acc", f32, (16, 8), Space.REG, 1.5),
        Drain("acc", ROWS, COLS, "v", (Store("y", (M, symbol("n")), v("v") * 2),)),
        Drain("acc", ROWS, COLS, "v", (Let("h", Name("v", f16)),)),
        Drain("acc", ROWS, COLS, "v", (), 4),
    ),
    "attend": (
        Attend(
            View("q", (M, symbol("d"))),
            View("k", (J, symbol("d"))),
            View("v", (J, symbol("e"))),
            ROWS,
            Axis("j", N),
            Axis("d", 64),
            Axis("e", 8),
            "dot",
            v("dot") * 0.125 + where(INSIDE, 0, -math.inf * literal(1, f32)),
            "out",
            (Store("y", (M, symbol("e")), v("out")),),
            "attention.f32",
            (64, 256),
            4,
        ),
    ),
    "when": (
        When(INSIDE, (Sync(),)),
        When(call("not", INSIDE), (Sync(),), (Store("y", (0, 0), literal(1, f32)), Sync())),
        When(literal(True, bool_), (), (Sync(),)),
    ),
    "sync": (Sync(),),
    "names that are words of the text": (
        Tile("sync", f32, (1,), Space.REG),
        Store("sync", (0,), literal(1, f32)),
        Let("for", x_at(0, 0)),
        Let("of", v("for")),
        Let("where", v("of") + v("for")),
        Let("odd name", v("where")),
        Let("exp", v("odd name")),
        Loop("step", N, (Loop("role", symbol("step"), (Let("i", index_value(symbol("role"))),)),)),
        Let("f32", call("exp", v("exp"))),
        Store("y", (symbol("odd one"), symbol("min")), v("f32")),
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_every_node_reads_back(name: str) -> None:
    assert_reads_back(of(*NODES[name]))
    assert parse_body(print_body(NODES[name])) == NODES[name]


def test_every_statement_has_an_example() -> None:
    seen = {type(stmt) for body in NODES.values() for stmt in body}
    assert seen == set(Stmt.__args__)  # type: ignore[attr-defined]


def test_headers() -> None:
    many = tuple(Param(f"input_{k}", f32, (N, 768)) for k in range(5))
    laid = Param("in.2", i8, (1, N, 4, 4), layout=Layout((1, 16), ((0, 0), (0, 0), (1, 1), (2, 0))))
    both = Param("state", f32, (), Access.INOUT)
    for params in ((X, Y), (X, both), (both, X), (Y, X, both, Y), (*many, laid, Y), (), (X,)):
        assert_reads_back(Kernel(params, ()))
    assert_reads_back(Kernel((X, Y), (), reinterprets=True, group=128))
    text = print_kernel(Kernel((laid, Y), ()), "k")
    assert text.startswith("kernel k(in.2: i8[1, N, 4, 4] far block(1, 16) halo(0, 0, 1, 2:0)) ->")


def test_reads_like_a_formula() -> None:
    a, b = x_at(R, 0), x_at(R, 1)
    value = where(call("and", index_value(2 * R - 1) < 4, a <= b), (a - b) * -2.0 - (a - 1), -a / b)
    text = print_body((Let("t", call("exp", value)),))
    assert text == (
        "t = exp(where([2*i - 1] < 4 and x[i, 0]:f32 <= x[i, 1]:f32, "
        "(x[i, 0]:f32 - x[i, 1]:f32) * -2.0 - (x[i, 0]:f32 - 1.0), -x[i, 0]:f32 / x[i, 1]:f32))\n"
    )


def test_types_stand_only_where_needed() -> None:
    text = assert_reads_back(of(Let("t", x_at(R, 0) + 1), Store("y", (R, 0), v("t") * 0.5)))
    assert "t = x[i, 0] + 1.0" in text and ":f" not in text
    text = assert_reads_back(of(Let("t", literal(1, f16) * 2), Store("y", (0, 0), literal(1, f32))))
    assert "t = 1.0:f16 * 2.0:f16" in text and "y[0, 0] = 1.0\n" in text


def test_shared_values_are_written_once() -> None:
    value: Scalar = x_at(R, 0)
    for _ in range(200):  # a tree of 2^200 leaves
        value = value * value + 1
    text = assert_reads_back(of(Store("y", (R, 0), value)))
    assert len(text) < 20_000 and "$1 = ($0 * $0 + 1.0) * ($0 * $0 + 1.0) + 1.0" in text
    long = call("exp", x_at(2 * R + J - 1, 7 * J - 3)) + 1.5
    text = assert_reads_back(of(Fold(("s",), "sum", (Axis("j", 8),), (long * long,))))
    assert text.count("exp") == 1 and text.index("fold") < text.index("$0 =")


VALUES = st.one_of(
    st.sampled_from([math.inf, -math.inf, math.nan, -0.0, 1e-5, 1e30]), st.floats(), st.integers()
)


def literals() -> st.SearchStrategy[Scalar]:
    def make(value: float | int, dtype: object) -> Scalar:
        if not dtype.is_float and isinstance(value, float):  # type: ignore[attr-defined]
            value = 0
        return literal(value, dtype)  # type: ignore[arg-type]

    return st.builds(make, VALUES, st.sampled_from(ALL))


def grown(inner: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Scalar]:
    def apply(fn: str, args: list[Scalar]) -> Scalar:
        arity = FUNCTIONS[fn].arity
        first = args[0]
        condition = args[1] if args[1].dtype is bool_ else Cast(args[1], bool_)
        rest = [a if a.dtype is first.dtype else Cast(a, first.dtype) for a in args[2:]]
        operands = (condition, first, rest[0]) if fn == "where" else (first, *rest)[:arity]
        defined = FUNCTIONS[fn].result([a.dtype for a in operands]) is not None
        return call(fn, *operands) if defined else first

    calls = st.builds(
        apply, st.sampled_from(sorted(FUNCTIONS)), st.lists(inner, min_size=4, max_size=4)
    )
    gathers = st.builds(lambda e: Load("x", (Cast(e, i64), R + 1), f32), inner)
    return calls | gathers | st.builds(Cast, inner, st.sampled_from([f64, bf16, u8, bool_]))


LEAVES = literals() | st.sampled_from(
    [
        x_at(R, 2 * J),
        Load("x", (R,), f16),
        Load("unknown", (N // 3,), i32),
        Index(R, i64),
        Index(R * 2 - N % 4, i64),
        Index(symbol("t"), i64),
        Index(symbol("exp"), i64),
        v("t"),
        Name("t", bool_),
        Name("free", f32),
        Name("where", f32),
    ]
)


@given(st.recursive(LEAVES, grown, max_leaves=12))
def test_any_scalar_reads_back(value: Scalar) -> None:
    body = (
        Let("t", x_at(0, 0)),
        Let("u", value),
        When(value if value.dtype is bool_ else Cast(value, bool_), (Sync(),)),
        Store("y", (Cast(value, i64), J), value),
    )
    assert_reads_back(of(*body))


def program() -> Program:
    double = Kernel((X, Y), (Loop("i", N, (Store("y", (R, 0), x_at(R, 0) * 2),)),))
    nothing = Kernel((X, Y), (), reinterprets=True)
    run = Launch(double, ("in", "a"), ("/enc/Mul", 'odd "name"'), "mul+add")
    loop = HostLoop(
        "trips", "go", "again", "turn",
        (Carried("a", "entry", "exit", "b"), Carried("b", "e2", "x2", "a")),
        (Sliced("in", "row"), Sliced("in", "back", True)),
        (Sliced("out 1", "row"),),
        (Launch(double, ("entry", "exit")), HostCopy("exit", "x2")),
        ("/Loop",),
    )  # fmt: skip
    plain = HostLoop(2 * N, None, None, None, (), (), (), ())
    return Program(
        "odd name",
        (
            Buffer("in", f32, (N, 8), Kind.INPUT),
            Buffer("w", f32, (8,), Kind.CONSTANT, constant="00ff"),
            Buffer("a", f32, (N, 8), layout=Layout((1, 4), ((1, 0), (0, 0)))),
            Buffer("b", f32, (N, 8), alias_of="a", offset=4 * N),
            Buffer("out 1", f32, (N, 8), Kind.OUTPUT),
        ),
        (
            run,
            HostIf("go", (run, HostIf("go", (), ())), (Launch(nothing, ("a", "b")),), ("/If",)),
            HostIf("go", (HostCopy("a", "b"),), (HostRefuse("out 1", 'no "way"'),)),
            loop,
            plain,
        ),
    )


def test_programs_read_back() -> None:
    text = program_text(program())
    assert parse_program(text) == program()
    assert text.count("kernel k") == 2
    assert parse_program(program_text(Program("empty", (), ()))) == Program("empty", (), ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kernel k() -> { y[0] = ?\n}", "'?' means nothing here"),
        ("kernel k() -> {\n  t = z[0]\n}", "there is no buffer z"),
        ("kernel k() -> {\n  t = frob(1)\n}", "there is no function frob"),
        ("kernel k(x: f32[1]) -> {\n  t = x[0] + x[0] and true\n}", "and is not defined for f32"),
        ("kernel k(x: f32[1]) -> {\n  t = (x[0]*x[0]):f16\n}", "the value is f32, not f16"),
        ("kernel k(x: f33[1]) -> {}", "'f33' is no element type"),
        ("kernel k() -> {\n  for i in 4 role=warp {}\n}", "'warp' is no role"),
        ("kernel k() -> {\n  s = fold sun over i in 4 of i\n}", "there is no monoid sun"),
        ("kernel k() -> {\n  t = (1 + \n}", "expected"),
        ("kernel k() -> {} kernel", "'kernel' follows the end"),
    ],
)
def test_faults_show_the_line(text: str, words: str) -> None:
    with pytest.raises(BadInput) as fault:
        parse_kernel(text)
    assert words in fault.value.what
    assert fault.value.at is not None and fault.value.at.startswith("line ")
