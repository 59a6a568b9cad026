"""Runs kernels on the emulator for the tests, in a process of its own, through unmodified pycuda.

A process has one driver, and pytest's may hold a real one. Requests and answers are pickled on
standard input and output. Not here: any test.
"""

from __future__ import annotations

import atexit
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest

from unistack_aot.base.environment import environment
from unistack_aot.emulator.build import compile_kernels
from unistack_aot.emulator.load import activate

_PROGRAM = "import sys, tests.build.emulator_worker as w; w.serve(w.Path(sys.argv[1]))"
ROOT = Path(__file__).parents[2]
DEVICE_HEADERS = ROOT / "unistack_aot/targets/cuda/include"


@dataclass(frozen=True)
class Request:
    """One launch: arrays are copied to the device and back, numpy scalars are passed by value."""

    image: Path
    kernel: str
    arguments: tuple[Any, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    settings: dict[str, int] = field(default_factory=dict)
    repeat: int = 1


@dataclass(frozen=True)
class Answer:
    """The arrays after the launch, or the driver's error and the emulator's words about it."""

    arrays: tuple[np.ndarray, ...] = ()
    counters: Any = None
    error: str = ""
    message: str = ""
    seconds: float = 0.0


class EmulatorProcess:
    """The other end of a worker process; close() ends it."""

    def __init__(self, cache: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(cache)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def launch(self, request: Request) -> Answer:
        """Runs one launch; EOFError if the worker died."""
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)

    def close(self) -> None:
        """Ends the worker."""
        self._process.stdin.close()
        self._process.wait(timeout=30)


@cache
def process() -> EmulatorProcess:
    """The worker of this test run; skips the calling test where pycuda is not installed."""
    if find_spec("pycuda") is None:
        pytest.skip("pycuda is not installed (scripts/setup.sh builds it)")
    worker = EmulatorProcess(environment().cache)
    atexit.register(worker.close)
    return worker


@cache
def image(source: str, checked: bool = False, sm: int = 80) -> Path:
    """A kernel image of a CUDA text, built once per test run."""
    folder = Path(mkdtemp(prefix="unistack-emulator-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    return compile_kernels(source, folder / "kernels.so", sm, [DEVICE_HEADERS], checked)


def run(
    text: str, kernel: str, *arguments: object, checked: bool = False, sm: int = 80, **launch: Any
) -> Answer:
    """One launch that must succeed; checked launches also count traffic."""
    settings = {"count": 1, "tight_guard": 0} if checked else {}
    request = Request(image(text, checked, sm), kernel, arguments, settings=settings, **launch)
    answer = process().launch(request)
    assert answer.error == "", f"{answer.error}: {answer.message}"
    return answer


def kernel_file(name: str) -> str:
    """The text of a file in tests/build/kernels."""
    return (Path(__file__).parent / "kernels" / name).read_text()


def serve(cache: Path) -> None:
    """Answers requests until standard input ends."""
    emulator = activate(cache)
    cuda = import_module("pycuda.driver")  # after the emulator: it binds to the driver it finds
    cuda.init()
    context = cuda.Device(0).make_context()
    modules: dict[Path, Any] = {}
    channel = sys.stdout.buffer
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        pickle.dump(_run(cuda, emulator, modules, request), channel)
        channel.flush()
    context.pop()


def _run(cuda: Any, emulator: Any, modules: dict[Path, Any], request: Request) -> Answer:
    defaults = {"order": 0, "seed": 1, "count": 0, "check": 1, "strict_exit": 0, "tight_guard": 1}
    for name, value in {**defaults, **request.settings}.items():
        assert emulator.library.ua_emu_set(name.encode(), value) == 0
    if request.image not in modules:
        modules[request.image] = cuda.module_from_buffer(request.image.read_bytes())
    function = modules[request.image].get_function(request.kernel)
    if request.shared > 48 * 1024:
        function.set_attribute(
            cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, request.shared
        )
    buffers = {
        i: cuda.mem_alloc(a.nbytes)
        for i, a in enumerate(request.arguments)
        if isinstance(a, np.ndarray)
    }
    for i, buffer in buffers.items():
        cuda.memcpy_htod(buffer, request.arguments[i])
    emulator.clear_counters()
    arguments = [buffers.get(i, a) for i, a in enumerate(request.arguments)]
    seconds = []
    try:
        for _ in range(request.repeat):
            start, stop = cuda.Event(), cuda.Event()
            start.record()
            function(*arguments, grid=request.grid, block=request.block, shared=request.shared)
            stop.record()
            stop.synchronize()
            seconds.append(start.time_till(stop) * 1e-3)
        arrays = []
        for i, buffer in buffers.items():
            arrays.append(np.empty_like(request.arguments[i]))
            cuda.memcpy_dtoh(arrays[-1], buffer)
    except cuda.Error as error:
        answer = Answer(error=str(error), message=emulator.last_error())
        emulator.forget_error()
        return answer
    counters = emulator.counters()
    return Answer(tuple(arrays), counters[-1] if counters else None, "", "", min(seconds))
