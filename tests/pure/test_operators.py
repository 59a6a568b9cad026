"""Schedule operators on written examples: the program before and after, exactly, and the same numbers from both.

Operators show their examples in their docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unistack_aot import schedule
from unistack_aot.base.dtypes import DType
from unistack_aot.base.verdict import No
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.nodes import Access, Kernel
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.program import Buffer, Program
from unistack_aot.mcir.run import Memory, Runner
from unistack_aot.mcir.text import print_kernel
from unistack_aot.mcir.verify import verify_kernel
from unistack_aot.schedule.operator import Operator, launch_of
from unistack_aot.schedule.operators import OPERATORS
from unistack_aot.schedule.storing_wide import STORE_WIDE

PRODUCT = Path(schedule.__file__).resolve().parents[1]
PAGE = PRODUCT.parent / "docs" / "mcir.md"
FIRST, LAST = "<!-- operators: schedule/operators.py -->\n", "<!-- end of operators -->"
DIMS = {"N": 7, "M": 5, "K": 6}
Kernels = tuple[Kernel, ...]


def kernels_of(text: str) -> Kernels:
    return tuple(parse_kernel(part) for part in re.split(r"(?m)^(?=kernel )", text) if part.strip())


def numbers(kernels: Kernels, given: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """All arrays after running kernels one after the other, on seeded inputs where none are given."""
    rng = np.random.default_rng(7)
    written = {p.name for k in kernels for p in k.params if p.access is Access.OUT}
    arrays: dict[str, np.ndarray] = dict(given or {})
    for name, param in sorted({p.name: p for k in kernels for p in k.params}.items()):
        shape = tuple(d if isinstance(d, int) else DIMS[str(d)] for d in param.shape)
        if name not in written and name not in arrays:
            arrays[name] = seeded(rng, param.dtype, shape)
    for kernel in kernels:
        arrays |= ran(kernel, arrays)
    return arrays


def ran(kernel: Kernel, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a kernel writes, in memory as its layouts say: halo and padding of operands are zero."""
    buffers = tuple(Buffer(p.name, p.dtype, p.shape, layout=p.layout) for p in kernel.params)
    memory = Memory(Program("example", buffers, ()), DIMS)
    for param in kernel.params:
        if param.access is not Access.OUT:
            memory.flat(param.name)[:] = 0
            memory.set(param.name, arrays[param.name])
    Runner(memory, DIMS, None).steps([launch_of(kernel)])
    for param in kernel.outputs:
        whole = param.layout.plain or np.isfinite(memory.flat(param.name)).all()
        assert whole, f"padding of {param.name} is not written"
    return {p.name: memory.get(p.name) for p in kernel.outputs}


def seeded(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a buffer; integers are small, so that they can be places."""
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(0, 4, shape).astype(dtype.numpy)


def in_memory(before: Kernels, after: Kernels, found: dict[str, np.ndarray]) -> dict[str, Any]:
    """For a result that is updated in place: the operand that it finds in its memory."""
    read = {p.name for k in before for p in k.inputs}
    fresh = {p.name for k in after for p in k.params if p.access is Access.OUT}
    updated = [p.name for k in after for p in k.outputs if p.name not in fresh | read]
    gone = [name for name in read if all(p.name != name for k in after for p in k.params)]
    return {updated[0]: found[gone[0]]} if updated else {}


def assert_same_numbers(operator: Operator[..., Any], before: Kernels, after: Kernels) -> None:
    """The last result of both, y, from the same operands."""
    found = numbers(before)
    given = {**operator.constants(before, found), **in_memory(before, after, found)}
    if given:
        given |= {p.name: found[p.name] for k in before for p in k.inputs}
    got, want = numbers(after, given)[after[-1].outputs[-1].name], found["y"]
    near = 1e-6 * max(1.0, float(np.max(np.abs(want))))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=near)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.name)
def test_docstrings_show_what_operators_do(operator: Operator[..., Any]) -> None:
    before, after = operator.texts
    kernels = kernels_of(before)
    changed = operator.example(kernels)
    assert not isinstance(changed, No), changed
    text = "\n".join(print_kernel(k, f"k{n}") for n, k in enumerate(changed))
    assert after.split() == text.split()  # long lines are broken in docstrings
    for kernel in (*kernels, *changed):
        verify_kernel(kernel)
    assert_same_numbers(operator, kernels, changed)


@pytest.mark.parametrize("value", ["bf16(f32(t[i]))", "bf16(t[i])", "bf16(f32(f16(f32(t[i]))))"])
def test_a_value_of_one_narrow_type_is_rounded_to_another(value: str) -> None:
    text = f"kernel k(t: f16[N] far) -> u: bf16[N] far {{ for i in N {{ u[i] = {value} }} }}"
    (launch,) = STORE_WIDE.sure((launch_of(parse_kernel(text)),), {"t", "u"})
    given = np.array(
        [1 + 2**-9, 65504, -(2**-24)], np.float32
    )  # exact in f16; bf16 has the last one only
    kernel = launch.kernel
    found = evaluate_kernel(kernel, {kernel.params[0].name: given}, {"N": 3})[kernel.params[1].name]
    np.testing.assert_array_equal(found, np.array([1, 65536, -(2**-24)], np.float32))


def test_the_documentation_lists_the_operators(update_golden: bool) -> None:
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(FIRST)
    lines = [f"| `{each.name}` | {each.summary} |" for each in OPERATORS]
    table = "\n".join(["", "| operator | what it does |", "|---|---|", *lines, ""])
    if update_golden:
        PAGE.write_text(f"{head}{FIRST}{table}{LAST}{rest.partition(LAST)[2]}", encoding="utf-8")
        rest = table + LAST
    assert rest.partition(LAST)[0] == table


def test_all_operators_are_in_the_list() -> None:
    """One in a file of its own that the list forgets would be shown and tested nowhere."""
    found: list[Operator[..., Any]] = []
    for info in pkgutil.iter_modules(schedule.__path__, f"{schedule.__name__}."):
        module = importlib.import_module(info.name)
        found += [each for each in vars(module).values() if isinstance(each, Operator)]
    assert {each.name for each in found} == {each.name for each in OPERATORS}
    assert len({each.name for each in OPERATORS}) == len(OPERATORS)


def test_examples_of_programs_belong_to_operators() -> None:
    """A program before and after that no operator shows would be parsed and run by nobody."""
    shown = {operator.apply for operator in OPERATORS}
    for info in pkgutil.iter_modules(schedule.__path__, f"{schedule.__name__}."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if inspect.isfunction(value) and "before:\n" in (value.__doc__ or ""):
                assert value in shown, f"{info.name}.{name}"


def test_schedulers_use_every_operator() -> None:
    """By its name, in a file that neither defines nor lists it."""
    sources = {p: p.read_text() for p in PRODUCT.rglob("*.py") if p.stem != "operators"}
    for operator in OPERATORS:
        home = inspect.getmodule(operator.apply)
        assert home is not None
        names = [n for n, value in vars(home).items() if value is operator]
        used = [
            path
            for path, text in sources.items()
            if any(re.search(rf"\b{n}(\.sure)?\(", text) for n in names)
            and path != Path(home.__file__ or "")
        ]
        assert used, f"no scheduler applies {operator.name}"
