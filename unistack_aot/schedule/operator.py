"""What a schedule operator is: a check that may refuse, an application, an example.

Not here: which exist (operators.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, ParamSpec, TypeVar

from numpy.typing import NDArray

from unistack_aot.base.errors import IRError
from unistack_aot.base.verdict import No, Yes
from unistack_aot.mcir.nodes import Fold, Kernel, Loop
from unistack_aot.mcir.program import Launch

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Kernels = tuple[Kernel, ...]
Arrays = Mapping[str, NDArray[Any]]


def _none(kernels: Kernels, arrays: Arrays) -> Arrays:
    """No constants."""
    return {}


@dataclass(frozen=True, slots=True)
class Operator(Generic[P, R]):
    """A transformation of a schedule: it may change time and memory, never values. A call checks, then applies.

    The docstring of `apply` shows kernels before and after in MCIR text; `example` makes the latter of the former.
    `constants` are arrays that those read and the compiler makes of operands of these.
    """

    name: str
    check: Callable[P, Yes | No]
    apply: Callable[P, R]
    example: Callable[[Kernels], Kernels | No]
    constants: Callable[[Kernels, Arrays], Arrays] = _none

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R | No:
        """The result, or why there is none."""
        found = self.check(*args, **kwargs)
        return found if isinstance(found, No) else self.apply(*args, **kwargs)

    def sure(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result where the caller knows that the check holds; IRError with the reason if it does not."""
        found = self.check(*args, **kwargs)
        if isinstance(found, No):
            raise IRError(f"{self.name}: {found}")
        return self.apply(*args, **kwargs)

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return self._doc().partition("\n\n")[0].replace("\n", " ")

    @property
    def texts(self) -> tuple[str, str]:
        """The kernels before and after, as the docstring shows them."""
        _, _, shown = self._doc().partition("before:\n")
        before, _, after = shown.partition("after:\n")
        return inspect.cleandoc(before) + "\n", inspect.cleandoc(after) + "\n"

    def _doc(self) -> str:
        return inspect.getdoc(self.apply) or ""


def or_same(found: T | No, before: T) -> T:
    """What an operator made, or what it refused to change."""
    return before if isinstance(found, No) else found


def launch_of(kernel: Kernel) -> Launch:
    """A launch on buffers called like the kernel's parameters."""
    return Launch(kernel, tuple(p.name for p in kernel.params))


def on_launches(change: Callable[[Launch, Launch], Launch | No], kernels: Kernels) -> Kernels | No:
    """What an operator makes of two launches, as an example."""
    found = change(*map(launch_of, kernels))
    return found if isinstance(found, No) else (found.kernel,)


def on_loop(change: Callable[[Kernel, Loop], Loop | No], kernels: Kernels) -> Kernels | No:
    """What an operator makes of a kernel's only loop, as an example."""
    (kernel,) = kernels
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    found = change(kernel, loop)
    return found if isinstance(found, No) else (kernel.with_body((found,)),)


def on_fold(change: Callable[[Kernel, Fold], Fold | No], kernels: Kernels) -> Kernels | No:
    """What an operator makes of the fold with which a kernel's only loop begins, as an example."""

    def changed(kernel: Kernel, loop: Loop) -> Loop | No:
        fold, *rest = loop.body
        assert isinstance(fold, Fold)
        found = change(kernel, fold)
        return found if isinstance(found, No) else replace(loop, body=(found, *rest))

    return on_loop(changed, kernels)
