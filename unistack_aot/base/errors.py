"""Every error a user can meet: what happened, where, what to do. Not here: how it is shown."""

from __future__ import annotations

from typing import ClassVar


class UnistackError(Exception):
    """Root of all errors of this package; prints as up to three lines: what, where, what to do."""

    exit_code: ClassVar[int] = 2

    def __init__(self, what: object, at: object = None, hint: str | None = None) -> None:
        super().__init__(what, at, hint)
        self.what = str(what)
        self.at = None if at is None else str(at)
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.what]
        if self.at is not None:
            lines.append(f"  at: {self.at}")
        if self.hint is not None:
            lines.append(f"  do: {self.hint}")
        return "\n".join(lines)


class BadModel(UnistackError):
    """The model file contradicts itself or the ONNX specification."""


class IllTyped(BadModel):
    """Operands that do not fit their operator, whatever is fed to the model."""


class Unsupported(UnistackError):
    """A valid request that this version can not serve."""


class BadInput(UnistackError):
    """An argument, option or array the user gave can not be used."""


class BadPackage(UnistackError):
    """A package is damaged, too new, or was built for something else."""


class MissingTool(UnistackError):
    """A compiler, driver or Python package that the request needs is not on this machine."""


class ToolFailed(UnistackError):
    """An external tool ran and reported failure; `what` carries its words."""


class IRError(UnistackError):
    """An intermediate program breaks its own rules: a fault of this package, never of the user."""


class ExtentsDiffer(IRError):
    """Two extents that must be one are not, or cannot be proven to be: `left` and `right`.

    `stretches`: an extent of 1 would do as well.
    """

    def __init__(self, what: object, left: object, right: object, stretches: bool = False) -> None:
        super().__init__(what)
        self.left = left
        self.right = right
        self.stretches = stretches


class TooFew(IRError):
    """An extent that must be at least `least`, and never is."""

    def __init__(self, what: object, extent: object, least: object) -> None:
        super().__init__(what)
        self.extent = extent
        self.least = least


class CheckFailed(UnistackError):
    """Results differ from the reference by more than the tolerance."""

    exit_code: ClassVar[int] = 1
