"""Runs compilers: found once, in parallel, results cached by content. Not here: which flags a target wants."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from unistack_aot.base.environment import environment
from unistack_aot.base.errors import ToolFailed


@dataclass(frozen=True, slots=True)
class Tool:
    """An external compiler: the command's first words, and what it says about itself (part of every cache key)."""

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Job:
    """One compiler run: named source texts, the arguments after the tool's own, and the file it writes.

    `includes` are folders of headers, which count by content. Other paths are relative to a fresh folder, so no path
    of this machine gets into the result.
    """

    tool: Tool
    arguments: tuple[str, ...]
    sources: tuple[tuple[str, bytes], ...]
    output: str
    salt: str = ""
    includes: tuple[Path, ...] = ()

    @property
    def key(self) -> str:
        """SHA-256 over everything the result depends on."""
        digest = hashlib.sha256()
        headers = tuple(folder_digest(folder) for folder in self.includes)
        words = (self.tool.version, *self.arguments, self.output, self.salt, *headers)
        digest.update("\0".join(words).encode())
        for name, data in self.sources:
            digest.update(f"\0{name}\0{len(data)}\0".encode())
            digest.update(data)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The bytes a job made, and what the tool printed (kept with the cached result)."""

    data: bytes
    log: str


@cache
def probe_tool(command: tuple[str, ...]) -> Tool | None:
    """The tool if its command runs, with its version text; None if it is not here."""
    if shutil.which(command[0]) is None:
        return None
    ran = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return Tool(command, ran.stdout.strip()) if ran.returncode == 0 else None


@cache
def folder_digest(folder: Path) -> str:
    """SHA-256 over names and contents of the files under a folder of headers."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run_jobs(jobs: Sequence[Job], done: Callable[[int], None] = lambda _: None) -> list[Outcome]:
    """Run jobs in parallel (as many as UA_JOBS says); equal jobs and cached results run once.

    `done` is told how many have finished. ToolFailed carries the tool's words of the first failure.
    """
    workers = max(1, environment().jobs)
    results: list[Outcome] = []
    with ThreadPoolExecutor(workers) as pool:
        for count, outcome in enumerate(pool.map(run_job, jobs), 1):
            results.append(outcome)
            done(count)
    return results


def run_job(job: Job) -> Outcome:
    """Run one job, or take its result from the cache."""
    store = environment().cache / "objects"
    kept = store / job.key[:2] / job.key
    log = kept.with_suffix(".log")
    if kept.exists() and log.exists():
        return Outcome(kept.read_bytes(), log.read_text())
    outcome = _execute(job)
    kept.parent.mkdir(parents=True, exist_ok=True)
    _publish(log, outcome.log.encode())
    _publish(kept, outcome.data)
    return outcome


def _publish(path: Path, data: bytes) -> None:
    """Write a file so that others see it whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(name, path)


def _execute(job: Job) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="unistack_aot_") as folder:
        for name, data in job.sources:
            (Path(folder) / name).write_bytes(data)
        ran = subprocess.run(
            [*job.tool.command, *(f"-I{folder}" for folder in job.includes), *job.arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        result = Path(folder) / job.output
        if ran.returncode != 0 or not result.exists():
            raise ToolFailed(
                f"{job.tool.command[0]} failed: {_first_errors(ran.stderr or ran.stdout)}",
                at=", ".join(name for name, _ in job.sources),
                hint="run again with --dump DIR to see the generated source",
            )
        return Outcome(result.read_bytes(), ran.stderr + ran.stdout)


def _first_errors(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line.lower()]
    return " | ".join(lines[:3]) or text.strip()[:300] or "no message"
