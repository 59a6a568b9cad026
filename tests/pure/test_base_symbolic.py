"""Integer expressions: canonical form, text, substitution, bounds and simplification."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistack_aot.base.symbolic import (
    Dim,
    FloorDiv,
    Sym,
    bounds,
    ceildiv,
    coefficient,
    compiled,
    divisible,
    evaluate,
    is_linear_in,
    linear_split,
    maximum,
    minimum,
    parse,
    rename,
    simplify,
    substitute,
    symbol,
    symbols,
    terms,
    text,
)

A, B, N, M = (symbol(name) for name in ("a", "b", "N", "M"))
NAMES = ("a", "b", "N", "batch size")


def _combine(children: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    divisor = st.sampled_from([1, 2, 3, 4, 8, 12, 16, -3]) | st.sampled_from([N, 4 * N, N + 2])
    factor = st.integers(-4, 16) | st.sampled_from([A, N])
    return st.one_of(
        st.builds(lambda x, y: x + y, children, children),
        st.builds(lambda x, y: x - y, children, children),
        st.builds(lambda x, y: x * y, children, factor),
        st.builds(lambda x, y: x // y, children, divisor),
        st.builds(lambda x, y: x % y, children, divisor),
        st.builds(minimum, children, children),
        st.builds(maximum, children, children),
    )


expressions = st.recursive(
    st.sampled_from([symbol(name) for name in NAMES]) | st.integers(-20, 20),
    _combine,
    max_leaves=12,
)


@st.composite
def _situations(draw: st.DrawFn) -> tuple[dict[str, tuple[Dim | None, Dim | None]], dict[str, int]]:
    """Ranges of the symbols and a point inside them; N stays positive, as a divisor must."""
    env = {"N": draw(st.integers(1, 40))}
    ranges: dict[str, tuple[Dim | None, Dim | None]] = {"N": (1, draw(st.sampled_from([40, None])))}
    for name in ("a", "b", "batch size"):
        low = draw(st.integers(-8, 8))
        match draw(st.sampled_from(["closed", "open", "symbolic", "default"])):
            case "closed":
                high = low + draw(st.integers(0, 40))
                ranges[name] = (low, high)
                env[name] = draw(st.integers(low, high))
            case "open":
                ranges[name] = (None, low)
                env[name] = low - draw(st.integers(0, 60))
            case "symbolic":
                ranges[name] = (0, N - 1)
                env[name] = draw(st.integers(0, env["N"] - 1))
            case _:
                env[name] = draw(st.integers(0, 60))
    return ranges, env


@given(expressions)
def test_text_reads_back_as_the_same_object(value: Dim) -> None:
    back = parse(text(value))
    assert back is value or (isinstance(value, int) and back == value)


@given(expressions, _situations())
def test_bounds_hold(value: Dim, situation: tuple[dict, dict]) -> None:
    ranges, env = situation
    low, high = bounds(value, ranges)
    actual = evaluate(value, env)
    assert low is None or low <= actual
    assert high is None or actual <= high


@given(expressions, _situations())
def test_simplify_keeps_the_value(value: Dim, situation: tuple[dict, dict]) -> None:
    ranges, env = situation
    assert compiled(value)(env) == evaluate(value, env)
    assert evaluate(simplify(value, ranges), env) == evaluate(value, env)


@given(expressions, expressions, _situations())
def test_arithmetic_means_what_python_means(x: Dim, y: Dim, situation: tuple[dict, dict]) -> None:
    env = situation[1]
    a, b = evaluate(x, env), evaluate(y, env)
    assert evaluate(x + y, env) == a + b
    assert evaluate(x - y, env) == a - b
    assert evaluate(x * y, env) == a * b
    assert evaluate(minimum(x, y), env) == min(a, b)
    assert evaluate(maximum(x, y), env) == max(a, b)
    for by in (1, 2, 3, 7, 8, 16, -5):
        assert evaluate(x // by, env) == a // by
        assert evaluate(x % by, env) == a % by
    if b:
        assert evaluate(x // y, env) == a // b
        assert evaluate(x % y, env) == a % b
    if b > 0:
        assert evaluate(ceildiv(x, y), env) == -(-a // b)


@given(expressions, expressions, _situations())
def test_substitute_commutes_with_evaluate(x: Dim, y: Dim, situation: tuple[dict, dict]) -> None:
    env = situation[1]
    inner = evaluate(y, env)
    assert evaluate(substitute(x, {"a": y}), env) == evaluate(x, {**env, "a": inner})
    assert "q" not in symbols(rename(rename(x, {"a": "q"}), {"q": "a"}))


@given(expressions, _situations())
def test_linear_split_and_divisible_are_true(value: Dim, situation: tuple[dict, dict]) -> None:
    env = situation[1]
    split = linear_split(value, "a")
    if split is not None:
        coeff, rest = split
        assert "a" not in symbols(coeff) | symbols(rest)
        assert value == coeff * A + rest
    for by in (2, 3, 4, 16):
        assert not divisible(value, by) or evaluate(value, env) % by == 0


RULES = [
    ("(16*a + b)//16", {"b": (0, 15)}, "a"),
    ("(16*a + b)%16", {"b": (0, 15)}, "b"),
    ("(64*a + b)//16", {"b": (0, 15)}, "4*a"),
    ("(16*a + b)//64", {"b": (0, 15)}, "a//4"),
    ("(16*a + b)%64", {"b": (0, 15)}, "16*(a%4) + b"),
    ("4*(a//4) + a%4", {}, "a"),
    ("4*((a + 5)//4) + (a + 5)%4", {}, "a + 5"),
    ("4*((a//4)%8) + a%4", {}, "a%32"),
    ("(a//4)//4", {}, "a//16"),
    ("(a//4 + 1)//4", {}, "(a + 4)//16"),
    ("a//8", {"a": (0, 7)}, "0"),
    ("a%8", {"a": (0, 7)}, "a"),
    ("a%8", {"a": (8, 15)}, "a - 8"),
    ("min(a, 8)", {"a": (0, 8)}, "a"),
    ("max(a, 8)", {"a": (0, 8)}, "8"),
    ("min(64, N - 64*a)", {"N": (64, 64), "a": (0, 0)}, "64"),
    ("(N*a + b)//N", {"b": (0, N - 1), "N": (1, None)}, "a"),
    ("(N*a + b)%N", {"b": (0, N - 1), "N": (1, None)}, "b"),
    ("(M*N*a + N*M - 1)//N", {"N": (1, None)}, "M*a + M - 1"),
    ("N*((a + b)//N) + (a + b)%N", {"N": (1, None)}, "a + b"),
    ("(16*a + 4*b)//16 + (8*M)%4", {"b": (0, 3)}, "a"),
    ("(a%16)//4", {}, "(a//4)%4"),
    ("(6*a + 4*N)//2", {}, "3*a + 2*N"),
]


@pytest.mark.parametrize(("source", "ranges", "want"), RULES, ids=[rule[0] for rule in RULES])
def test_simplify_examples(source: str, ranges: dict, want: str) -> None:
    assert text(simplify(parse(source), ranges)) == text(parse(want))


def test_equal_expressions_are_one_object() -> None:
    assert (A + B) * 2 is 2 * B + 2 * A
    assert A - A == 0 and type(A - A) is int
    assert (A + 3) - A == 3
    assert minimum(A, A + 1) is A
    assert maximum(minimum(A, B), minimum(B, A)) is minimum(A, B)
    assert (N * M) // M is N
    assert hash(parse("a + 2*b")) == hash(A + 2 * B)


def test_pickle_and_copy_give_the_same_object() -> None:
    value = ceildiv(A * N, 16) + minimum(A, B)
    assert pickle.loads(pickle.dumps(value)) is value
    assert copy.deepcopy(value) is value


def test_bounds_use_symbolic_ends() -> None:
    ranges = {"a": (0, N - 1), "N": (1, 100)}
    assert bounds(A, ranges) == (0, 99)
    assert bounds(N - A, ranges)[0] == 1
    assert bounds(N * M - A * M, {**ranges, "M": (2, 3)})[0] == 2
    assert bounds(A + B, {}) == (0, None)


def test_structure_is_open_to_match() -> None:
    const, parts = terms(3 * (A // 4) + 7)
    assert const == 7
    match parts:
        case ((3, FloorDiv(numerator, 4)),):
            assert numerator is A
        case _:
            pytest.fail(f"unexpected structure {parts}")


def test_linear_questions() -> None:
    assert coefficient(3 * A * N + B, "a") is 3 * N
    assert is_linear_in(A + A * N, "a") and not is_linear_in(A * A, "a")
    assert not is_linear_in(A % 4, "a")
    assert divisible(16 * A + 32, 16) and not divisible(A, 2)
    with pytest.raises(ValueError, match="not linear"):
        coefficient(A // 2, "a")


@pytest.mark.parametrize("source", ["", "a +", "a $ b", "min()", "(a", "3 4", "'open"])
def test_unreadable_text_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        parse(source)


def test_zero_divisor_is_refused() -> None:
    with pytest.raises(ZeroDivisionError):
        _ = A // 0
    with pytest.raises(ZeroDivisionError):
        _ = A % 0


def test_deep_and_wide_expressions_stay_quick() -> None:
    total: Dim = 0
    for number in range(300):
        total = total + number * symbol(f"s{number}")
    assert isinstance(total, Sym) and len(total.terms) == 299
    nested: Dim = A
    for _ in range(60):
        nested = (nested + B) // 3 + 1
    assert parse(text(nested)) is nested
