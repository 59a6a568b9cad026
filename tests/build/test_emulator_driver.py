"""The emulated driver under unmodified pycuda: streams, events, graphs, errors, refusals."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.build.emulator_worker import DEVICE_HEADERS, Request, image, process
from tests.build.runtime_packages import buffer
from unistack_aot.artifact import manifest as m
from unistack_aot.artifact.writer import write_package
from unistack_aot.base.environment import environment
from unistack_aot.base.errors import ToolFailed
from unistack_aot.emulator import build
from unistack_aot.emulator.build import compile_kernels, driver_library, host_compiler

SCALE = """#include "ua/kernel.cuh"
extern "C" __global__ void scale(const float* x, float* y, float factor, long long n, char tag) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n && tag == 7) y[i] = x[i] * factor;
}
UA_KERNEL(scale)
extern "C" __global__ void places(unsigned* y) {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    const unsigned place = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16;
    y[block * threads + ua::thread_index()] = place | block << 24;
}
UA_KERNEL(places)
extern "C" __global__ void tally(const int* x, int* sum, float* total, unsigned* ballots, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int value = i < n ? x[i] : 0;
    const unsigned ballot = __ballot_sync(0xffffffffu, value & 1);
    if ((threadIdx.x & 31) == 0) ballots[i / 32] = ballot;
    atomicAdd(sum, value);
    atomicAdd(total, (float)value);
    if (__syncthreads_or(value < 0) && threadIdx.x == 0) atomicAdd(sum, 1000000);
}
UA_KERNEL(tally)
"""


def test_arguments_of_mixed_sizes_arrive() -> None:
    x = np.arange(1000, dtype=np.float32)
    arguments = (x, np.zeros_like(x), np.float32(2.5), np.int64(900), np.int8(7))
    answer = process().launch(Request(image(SCALE), "scale", arguments, (4, 1, 1), (256, 1, 1)))
    assert answer.error == "", answer.message
    np.testing.assert_array_equal(answer.arrays[1][:900], x[:900] * np.float32(2.5))
    assert not answer.arrays[1][900:].any()


@pytest.mark.parametrize("order", [0, 1, 2])
def test_coordinates_of_three_dimensional_blocks(order: int) -> None:
    request = Request(
        image(SCALE),
        "places",
        (np.zeros(12 * 90, np.uint32),),
        (3, 2, 2),
        (5, 6, 3),
        settings={"order": order},
    )
    answer = process().launch(request)
    block, z, y, x = np.indices((12, 3, 6, 5))
    expected = x | y << 8 | z << 16 | block << 24
    np.testing.assert_array_equal(answer.arrays[0], expected.ravel())


@pytest.mark.parametrize("checked", [False, True])
def test_atomics_ballots_and_voting_barriers(checked: bool) -> None:
    x = np.random.default_rng(1).integers(0, 1000, 1000).astype(np.int32)
    x[5] = -3
    out = (np.zeros(1, np.int32), np.zeros(1, np.float32), np.zeros(32, np.uint32))
    request = Request(
        image(SCALE, checked), "tally", (x, *out, np.int32(1000)), (4, 1, 1), (256, 1, 1)
    )
    answer = process().launch(request)
    assert answer.error == "", answer.message
    _, total, as_float, ballots = answer.arrays
    assert total[0] == x.sum() + 1000000
    assert as_float[0] == x.sum()
    bits = np.zeros(1024, np.uint32)
    bits[:1000] = x & 1
    expected = (bits.reshape(32, 32) << np.arange(32, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
    np.testing.assert_array_equal(ballots, expected)


def test_too_much_shared_memory_is_refused_with_numbers() -> None:
    arguments = (np.zeros(1080, np.uint32),)
    request = Request(image(SCALE), "places", arguments, (1, 1, 1), (2048, 1, 1))
    answer = process().launch(request)
    assert "invalid argument" in answer.error
    assert "launch refused: kernel places: grid (1,1,1), block (2048,1,1)" in answer.message


def test_driver_library_is_built_once() -> None:
    path = driver_library(environment().cache)
    assert path.name == "libcuda.so.1"
    before = path.stat().st_mtime_ns
    assert driver_library(environment().cache) == path
    assert path.stat().st_mtime_ns == before


MANY = '#include "ua/kernel.cuh"\n' + "".join(
    f"""extern "C" __global__ void k{n}(float* y) {{ y[threadIdx.x] = {n}; }}
UA_KERNEL(k{n})
"""
    for n in range(13)
)
SHARED_HELPER = MANY.replace(
    "UA_KERNEL(k2)\n", "UA_KERNEL(k2)\nstatic float five() { return 5; }\n"
)
SHARED_HELPER = SHARED_HELPER.replace("= 12;", "= five();")


def test_parts_of_an_image_are_built_once_whatever_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    compile_part = build._compile_part

    def counted(text: str, *more: object) -> None:
        built.append(text)
        compile_part(text, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "_compile_part", counted)
    images: list[bytes] = []
    for cache in ("one", "one", "two"):
        monkeypatch.setenv("UA_CACHE", str(tmp_path / cache))
        images.append(
            compile_kernels(MANY, tmp_path / "k.so", 80, [DEVICE_HEADERS], True).read_bytes()
        )
    assert len(built) == 2 * 3  # parts of 6, 6 and 1 kernels; nothing the second time
    assert images[0] == images[1] == images[2]
    assert str(tmp_path).encode() not in images[0]
    edited = MANY.replace("= 12;", "= 13;")
    compile_kernels(edited, tmp_path / "k.so", 80, [DEVICE_HEADERS], True)
    assert len(built) == 2 * 3 + 1


def test_a_kernel_may_use_what_an_earlier_part_defines() -> None:
    answer = process().launch(
        Request(image(SHARED_HELPER), "k12", (np.zeros(4, np.float32),), (1, 1, 1), (4, 1, 1))
    )
    assert answer.error == "", answer.message
    np.testing.assert_array_equal(answer.arrays[0], 5)


def test_a_compiler_error_is_reported_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed) as caught:
        compile_kernels("__shared__ float tile[32];", tmp_path / "bad.so", 80, [])
    assert caught.value.hint is not None
    assert "error" in caught.value.hint
    assert host_compiler()[0] in str(caught.value)


PROGRAM = """
import ctypes, sys
from pathlib import Path
import numpy as np
from unistack_aot.base.environment import environment
from unistack_aot.base.errors import Unsupported
from unistack_aot.emulator.load import activate, active
assert active() is None
emulator = activate(environment().cache)
assert activate(environment().cache) is emulator is active()
emulator.set_generation(90)
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
cuda.init()
device = cuda.Device(0)
assert device.compute_capability() == (9, 0), device.compute_capability()
assert "emulator" in device.name()
context = device.make_context()
module = cuda.module_from_buffer(Path(sys.argv[1]).read_bytes())
scale = module.get_function("scale")
scale.prepare("PPfqb")
x = gpuarray.to_gpu(np.arange(64, dtype=np.float32))
y = gpuarray.empty(64, np.float32)
stream = cuda.Stream()

emulator.set_lazy_streams(True)
scale.prepared_async_call((1, 1), (64, 1, 1), stream, x.gpudata, y.gpudata, 3.0, 64, 7)
host = cuda.pagelocked_empty(64, np.float32)
host[:] = -1
cuda.memcpy_dtoh_async(host, y.gpudata, stream)
assert (host == -1).all()  # nothing has been waited for
stream.synchronize()
assert (host == 3 * np.arange(64)).all()
emulator.set_lazy_streams(False)

driver = ctypes.CDLL("libcuda.so.1")  # the emulated one: matched by its name
handle = ctypes.c_void_p(stream.handle)
graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuStreamBeginCapture_v2(handle, 0) == 0
scale.prepared_async_call((1, 1), (64, 1, 1), stream, y.gpudata, y.gpudata, 2.0, 64, 7)
assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
flags = ctypes.c_ulonglong(0)
assert driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, flags) == 0
assert (y.get() == 3 * np.arange(64)).all()  # capturing runs nothing
for _ in range(3):
    assert driver.cuGraphLaunch(executable, handle) == 0
stream.synchronize()
assert (y.get() == 24 * np.arange(64)).all()

start, stop = cuda.Event(), cuda.Event()
start.record(stream)
stop.record(stream)
stop.synchronize()
assert start.time_till(stop) >= 0
try:
    cuda.module_from_buffer(b"\\x7fELF" + bytes(14) + (190).to_bytes(2, "little") + bytes(60))
except cuda.Error as error:
    assert "built for a GPU" in str(error), error
else:
    raise AssertionError("a cubin was accepted")
assert "190 is CUDA" in emulator.last_error()
del x, y, host
context.pop()
"""

BOXES = """
import numpy as np
from unistack_aot.emulator.load import activate
emulator = activate()
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
cuda.init()
context = cuda.Device(0).make_context()
x = np.arange(6 * 10, dtype=np.float32).reshape(6, 10)

# a part of a host array to pitched memory and back, now and on a stream
pitched, pitch = cuda.mem_alloc_pitch(4 * 4, 3, 4)
assert pitch % 512 == 0
there = cuda.Memcpy2D()
there.set_src_host(x)
there.src_x_in_bytes, there.src_y, there.src_pitch = 8, 2, 40
there.set_dst_device(pitched)
there.dst_pitch, there.width_in_bytes, there.height = pitch, 16, 3
there(aligned=False)
back = cuda.Memcpy2D()
y = np.full((4, 5), -1, np.float32)
back.set_src_device(pitched)
back.src_pitch, back.width_in_bytes, back.height = pitch, 16, 3
back.set_dst_host(y)
back.dst_x_in_bytes, back.dst_y, back.dst_pitch = 4, 1, 20
stream = cuda.Stream()
emulator.set_lazy_streams(True)
back(stream)
assert (y == -1).all()
stream.synchronize()
emulator.set_lazy_streams(False)
want = np.full((4, 5), -1, np.float32)
want[1:, 1:] = x[2:5, 2:6]
assert (y == want).all(), y

# planes; a strided view of a gpuarray
cube = np.arange(4 * 3 * 5, dtype=np.float32).reshape(4, 3, 5)
device = gpuarray.to_gpu(cube)
part = np.zeros((2, 2, 3), np.float32)
box = cuda.Memcpy3D()
box.set_src_device(device.gpudata)
box.src_x_in_bytes, box.src_y, box.src_z, box.src_pitch, box.src_height = 8, 1, 2, 20, 3
box.set_dst_host(part)
box.dst_pitch, box.dst_height = 12, 2
box.width_in_bytes, box.height, box.depth = 12, 2, 2
box()
assert (part == cube[2:, 1:, 2:]).all(), part
matrix = gpuarray.to_gpu(x)
assert (matrix[1:4, 2:7].get() == x[1:4, 2:7]).all()

# fills of rows
cuda.memset_d2d32(matrix.gpudata, 40, 0x3F800000, 3, 2)
assert (matrix.get()[:2, :3] == 1).all() and (matrix.get()[2:] == x[2:]).all()
cuda.memset_d2d8(matrix.gpudata, 40, 0, 8, 6)
assert (matrix.get()[:, :2] == 0).all() and (matrix.get()[2:, 2:] == x[2:, 2:]).all()
cuda.memset_d2d16_async(matrix.gpudata, 40, 0, 20, 1, stream)
stream.synchronize()
assert (matrix.get()[0] == 0).all()

def refused(work, words):
    try:
        work()
    except cuda.Error as error:
        assert words in str(error), error
        return
    raise AssertionError(words)

there.height = 4  # beyond the allocation
refused(lambda: there(aligned=False), "invalid argument")
refused(lambda: cuda.memset_d2d32(matrix.gpudata, 40, 0, 11, 6), "invalid argument")
refused(lambda: cuda.memset_d2d8(matrix.gpudata, 40, 0, 40, 7), "invalid argument")
context.set_limit(cuda.limit.STACK_SIZE, 4096)
assert context.get_limit(cuda.limit.STACK_SIZE) == 4096
assert not cuda.Device(0).can_access_peer(cuda.Device(0))
assert cuda.Device(cuda.Device(0).pci_bus_id()).get_attributes()
for _ in range(2):
    refused(cuda.TextureReference, "cuTexRefCreate failed: operation not supported by the emulator")
refused(lambda: cuda.mem_get_ipc_handle(matrix.gpudata), "not supported")
del matrix, device, pitched
context.pop()
"""

REFUSAL = """
import sys
try:
    import pycuda.driver
except ImportError:  # no driver on this machine: pretend there had been one
    sys.modules["pycuda._driver"] = sys
from unistack_aot.emulator.load import activate
activate()
"""

ONE_DRIVER = """
import ctypes, sys
import unistack_aot as ua
from unistack_aot.emulator.load import activate
first, path = sys.argv[1:3]
if first == "emulator":
    assert ua.load(path, "emulator").run({})["y"].tolist() == [5.0] * 4
if first == "activated":
    activate()
if first == "other":
    ctypes.CDLL(sys.argv[3])
second = "emulator" if first == "other" else "cuda:0"
try:
    ua.load(path, second)
except ua.UnistackError as error:
    print(error)
"""


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if find_spec("pycuda") is None:
        pytest.skip("pycuda is not installed (scripts/setup.sh builds it)")
    command = [sys.executable, "-c", program, *arguments]
    root = Path(__file__).parents[2]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)


def test_pycuda_streams_events_graphs_and_refusals() -> None:
    done = _run(PROGRAM, str(image(SCALE)))
    assert done.returncode == 0, done.stderr


def test_boxes_are_copied_and_filled_and_the_rest_refused_by_name() -> None:
    done = _run(BOXES)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert said.count("unistack emulator: cuTexRefCreate is not supported") == 1
    assert any(
        re.fullmatch(r"unistack emulator: cuIpcGetMemHandle\w* is not supported", s) for s in said
    )


def test_every_driver_function_that_pycuda_links_is_there() -> None:
    """A missing one would end the process when it is called."""
    found = find_spec("pycuda") and find_spec("pycuda._driver")
    if found is None or found.origin is None:
        pytest.skip("pycuda is not installed (scripts/setup.sh builds it)")
    names = set(re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", Path(found.origin).read_bytes()))
    # Messages hold names without the version that the linked symbol has.
    linked = {n for n in names if not {n + b"_v2", n + b"_v3", n + b"_v4"} & names}
    assert len(linked) > 100
    library = driver_library(environment().cache).read_bytes()
    assert not [name for name in linked if b"\0" + name + b"\0" not in library]


def test_activation_after_pycuda_is_refused() -> None:
    """Whether or not a driver is here: once pycuda has looked for one, it is too late."""
    done = _run(REFUSAL)
    assert done.returncode == 1
    assert "pycuda is already loaded" in done.stderr


@pytest.mark.parametrize("first", ["emulator", "activated", "other"])
def test_a_process_has_one_driver(first: str, tmp_path: Path) -> None:
    """The GPU after the emulator, and the emulator after any other driver, are refused in words."""
    code = compile_kernels(MANY.replace("= 12;", "= 5;"), tmp_path / "k.so", 80, [DEVICE_HEADERS])
    kernel = m.Kernel("k12", (m.Param("y", "out"),), ("1", "1", "1"), ("4", "1", "1"))
    output = buffer("y", ("4",), "output")
    targets = ("emulator:sm_80", "cuda:sm_80")
    variants = [
        m.Variant(target, f"{number}.so", (output,), (kernel,), (m.Launch(0, (0,)),))
        for number, target in enumerate(targets)
    ]
    manifest = m.Manifest(
        "tests", "one driver", (), (m.Tensor("y", "f32", ("4",)),), tuple(variants)
    )
    path = tmp_path / "m.pkg"
    write_package(path, manifest, {v.code: code.read_bytes() for v in variants})
    stub = tmp_path / "libcuda.so.1"
    command = [*host_compiler(), "-shared", "-x", "c", "-", "-o", str(stub)]
    subprocess.run(command, input="int cuInit(unsigned f) { return 100; }", text=True, check=True)
    done = _run(ONE_DRIVER, first, str(path), str(stub))
    assert done.returncode == 0, done.stderr
    if first == "other":
        assert "a CUDA driver is already loaded in this process" in done.stdout
        assert str(stub) in done.stdout
        return
    assert "needs NVIDIA's driver, and this process holds the emulator's" in done.stdout
    assert "use the GPU in another process than the emulator" in done.stdout
