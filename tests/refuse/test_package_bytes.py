"""One changed byte, and one missing end, of a compiled package: refused, or nothing that counts was changed."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import unistack_aot as ua
from unistack_aot.artifact.reader import open_package
from unistack_aot.base.errors import BadPackage

AGAIN = "copy the package again, or compile the model again"
MEMBERS = (
    "cpu/x86-64-v3.so",
    "golden.safetensors",
    "lock.json",
    "manifest.pb",
    "provenance.json",
    "weights.safetensors",
)
LOCAL_HEADER = 30


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a compiled package."""
    folder = tmp_path_factory.mktemp("package")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "fc")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    weight = numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), "w")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(folder / "m.onnx"))
    ua.compile_model(folder / "m.onnx", folder / "m.pkg", targets=("cpu:x86-64-v3",))
    return (folder / "m.pkg").read_bytes()


def spans(whole: bytes, path: Path) -> dict[str, tuple[int, int]]:
    """Where the data of every member lies."""
    path.write_bytes(whole)
    found: dict[str, tuple[int, int]] = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            at = info.header_offset + 26
            name, extra = (int.from_bytes(whole[k : k + 2], "little") for k in (at, at + 2))
            start = info.header_offset + LOCAL_HEADER + name + extra
            found[info.filename] = (start, start + info.file_size)
    return found


def around(whole: bytes, path: Path) -> Iterator[int]:
    """The bytes that are no member's data: headers, padding, directory."""
    inside = sorted(spans(whole, path).values())
    begins = [0, *(end for _, end in inside)]
    ends = [*(start for start, _ in inside), len(whole)]
    for begin, end in zip(begins, ends, strict=True):
        yield from range(begin, end)


def contents(path: Path) -> dict[str, bytes]:
    package = open_package(path, verify=True)
    return {each.name: bytes(package.data(each.name)) for each in package.manifest.members}


def test_the_members_are_known(whole: bytes, tmp_path: Path) -> None:
    assert tuple(sorted(spans(whole, tmp_path / "m.pkg"))) == MEMBERS


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_byte_around_the_data(flip: int, whole: bytes, tmp_path: Path) -> None:
    """Refused; or it says nothing that a package needs (a date), and every member is what it was."""
    path = tmp_path / "m.pkg"
    path.write_bytes(whole)
    good = contents(path)
    found = [read(path, whole, at, flip) for at in around(whole, path)]
    refused = [each for each in found if isinstance(each, BadPackage)]
    assert all(each.what and each.at == str(path) for each in refused)
    assert all(each == good for each in found if not isinstance(each, BadPackage))
    assert len(refused) > 400


def read(path: Path, whole: bytes, at: int, flip: int) -> dict[str, bytes] | BadPackage:
    """The contents of a package with one byte changed, or how it is refused."""
    path.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
    try:
        return contents(path)
    except BadPackage as error:
        return error


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 1.0])
def test_a_byte_of_a_member(name: str, part: float, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    start, end = spans(whole, path)[name]
    at = start + round((end - start - 1) * part)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
    with pytest.raises(BadPackage) as caught:
        contents(path)
    assert (caught.value.at, caught.value.hint) == (str(path), AGAIN)
    if name == "manifest.pb":
        said = "the manifest is not the one that was written (SHA-256 differs)"
    else:
        said = f"member {name!r} was changed (SHA-256 differs)"
    assert caught.value.what == said
    if name in (
        "lock.json",
        "provenance.json",
    ):  # nothing that runs; without them it still runs right
        used = ua.load(path, "cpu")
        x = np.eye(4, dtype=np.float32)
        np.testing.assert_array_equal(used.run({"x": x})["y"], np.arange(16).reshape(4, 4))
        return
    with pytest.raises(BadPackage) as used_damaged:
        ua.load(path, "cpu", selftest=True)
    assert used_damaged.value.what == said


def test_cut_short(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    ends = {end for _, end in spans(whole, path).values()}
    lengths = {1, 4, LOCAL_HEADER, *ends, *(end - 1 for end in ends)}
    lengths |= {len(whole) * k // 40 for k in range(1, 40)} | {
        len(whole) - k for k in range(1, 120)
    }
    for length in sorted(lengths):
        path.write_bytes(whole[:length])
        with pytest.raises(BadPackage) as caught:
            ua.load(path, "cpu")
        assert (caught.value.at, caught.value.hint) == (str(path), AGAIN), length
