"""Runs compilers: found once, in parallel, results cached by content. Not here: which flags a target wants."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import ENOSPC
from functools import cache
from pathlib import Path
from threading import BoundedSemaphore, Lock

from unistack_aot.base.environment import environment
from unistack_aot.base.errors import ToolFailed, UnistackError

_ROOM = "free space, or set TMPDIR to a folder that can be written"


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
    """The tool if its command runs, with its version text (but no place of this machine); None if it is not here."""
    if shutil.which(command[0]) is None:
        return None
    ran = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    words = [line for line in ran.stdout.splitlines() if not line.startswith("InstalledDir:")]
    return Tool(command, "\n".join(words).strip()) if ran.returncode == 0 else None


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
    stops = (
        _RUNNING.stops
    )  # of all jobs: those submitted while the first are being stopped must not begin
    with ThreadPoolExecutor(workers) as pool:
        waiting = [pool.submit(run_job, job, stops) for job in jobs]
        try:
            for count, outcome in enumerate(waiting, 1):
                results.append(outcome.result())
                done(count)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def run_job(job: Job, stops: int | None = None) -> Outcome:
    """Run one job, or take its result from the cache; not after `stop_tools` was called (`stops` times before)."""
    store = environment().cache / "objects"
    kept = store / job.key[:2] / job.key
    log = kept.with_suffix(".log")
    with _stored(store):
        if kept.exists() and log.exists():
            return Outcome(kept.read_bytes(), log.read_text())
    with _turn(environment().jobs):
        outcome = _execute(job, _RUNNING.stops if stops is None else stops)
    with _stored(store):
        kept.parent.mkdir(parents=True, exist_ok=True)
        _publish(log, outcome.log.encode())
        try:
            _publish(kept, outcome.data)
        except BaseException:
            log.unlink(missing_ok=True)  # of no use alone
            raise
    return outcome


def stop_tools() -> None:
    """End every compiler that is running, and begin none of the jobs that are waiting."""
    with _RUNNING.lock:
        _RUNNING.stops += 1
        for process in _RUNNING.processes:
            process.kill()


@dataclass
class _Running:
    """The compilers that run now, and how often they were stopped."""

    lock: Lock = field(default_factory=Lock)
    processes: set[subprocess.Popen[str]] = field(default_factory=set[subprocess.Popen[str]])
    stops: int = 0


_RUNNING = _Running()


@cache
def _turn(jobs: int) -> BoundedSemaphore:
    """What holds so many compilers at once, whoever runs them."""
    return BoundedSemaphore(max(1, jobs))


@contextmanager
def _stored(store: Path) -> Generator[None]:
    """Errors of the file system inside mean the cache."""
    try:
        yield
    except OSError as error:
        raise UnistackError(
            f"the cache of compiled kernels cannot be used: {error.strerror or error}",
            at=store.parent,
            hint="free space, or set UA_CACHE to a folder that can be written",
        ) from error


def _publish(path: Path, data: bytes) -> None:
    """Write a file so that others see it whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _execute(job: Job, stops: int) -> Outcome:
    try:
        with tempfile.TemporaryDirectory(prefix="unistack_aot_") as folder:
            for name, data in job.sources:
                (Path(folder) / name).write_bytes(data)
            code, log = _ran(job, folder, stops)
            result = Path(folder) / job.output
            if code == 0 and result.exists():
                return Outcome(result.read_bytes(), log)
    except OSError as error:
        raise UnistackError(
            f"a compiler could not be run: {error.strerror or error}",
            at=error.filename or tempfile.gettempdir(),
            hint=_ROOM,
        ) from error
    raise ToolFailed(
        f"{job.tool.command[0]} failed: {_first_errors(log)}",
        at=", ".join(name for name, _ in job.sources),
        hint=_ROOM
        if os.strerror(ENOSPC) in log
        else "run again with --dump DIR to see the generated source",
    )


def _ran(job: Job, folder: str, stops: int) -> tuple[int, str]:
    """Exit code and words of a job's tool."""
    command = [*job.tool.command, *(f"-I{folder}" for folder in job.includes), *job.arguments]
    with _RUNNING.lock:
        if _RUNNING.stops != stops:
            raise ToolFailed(f"{job.tool.command[0]} was stopped", hint="compile again")
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        _RUNNING.processes.add(process)
    try:
        out, err = process.communicate()
    finally:
        with _RUNNING.lock:
            _RUNNING.processes.discard(process)
    return process.returncode, err + out


def _first_errors(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line.lower()]
    return " | ".join(lines[:3]) or text.strip()[:300] or "no message"
