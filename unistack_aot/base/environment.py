"""The only place that reads environment variables. Not here: anything that alters generated code.

UA_CACHE    folder for compiled kernels and fetched files    (default ~/.cache/unistack_aot)
UA_CXX      C++ compiler for the host                        (default: the first one found)
UA_NVCC     CUDA compiler                                    (default: the first one found)
UA_THREADS  threads a loaded model may use                   (default: one per core)
UA_JOBS     compiler processes at once                       (default: one per core)
UA_MODELS   folder with published model files                (default: UA_CACHE/models)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import BadInput


@dataclass(frozen=True, slots=True)
class Environment:
    """What the environment says about this machine; None where it says nothing."""

    cache: Path
    cxx: str | None
    nvcc: str | None
    threads: int
    jobs: int
    models: Path


def environment(variables: Mapping[str, str] | None = None) -> Environment:
    """The settings in the variables (the process's own by default); BadInput for a bad number."""
    given = os.environ if variables is None else variables
    default = Path(given.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unistack_aot"
    cache = Path(given.get("UA_CACHE") or default)
    return Environment(
        cache=cache,
        cxx=given.get("UA_CXX") or None,
        nvcc=given.get("UA_NVCC") or None,
        threads=_count(given, "UA_THREADS"),
        jobs=_count(given, "UA_JOBS"),
        models=Path(given.get("UA_MODELS") or cache / "models"),
    )


def inherited(changes: Mapping[str, str]) -> dict[str, str]:
    """The variables of this process with changes, for a process to be started."""
    return {**os.environ, **changes}


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def _count(given: Mapping[str, str], name: str) -> int:
    written = given.get(name)
    if not written:
        return cores()
    if not written.isdecimal() or int(written) < 1:
        raise BadInput(
            f"{name}={written!r} is not a positive number", hint=f"unset {name} or set 1"
        )
    return int(written)
