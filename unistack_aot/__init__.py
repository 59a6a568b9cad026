"""The public face: compile_model, load, check, UnistackError, __version__, each imported when used.

Not here: any code of its own. A deployed machine imports the runtime through this and nothing else.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base.errors import UnistackError
    from .check import check, compile_model
    from .runtime.session import load

__version__ = "0.1.0"
__all__ = ["UnistackError", "__version__", "check", "compile_model", "load"]

_HOMES = {
    "UnistackError": ".base.errors",
    "check": ".check",
    "compile_model": ".check",
    "load": ".runtime.session",
}


class _Face(ModuleType):
    """This module's class: importing the package `check` must not hide the function `check`."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
