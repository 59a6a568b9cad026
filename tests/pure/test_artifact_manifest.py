"""The manifest's protobuf form: round trips, schema and generated code in step, versions."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from unistack_aot.artifact import manifest as m
from unistack_aot.artifact import manifest_pb2 as pb
from unistack_aot.artifact.verify import faults
from unistack_aot.artifact.wire import from_bytes, to_bytes
from unistack_aot.base.errors import BadPackage

ROOT = Path(__file__).parents[2]

KERNEL = m.Kernel(
    "k0",
    (m.Param("a", "in"), m.Param("b", "out"), m.Param("n", "dim64")),
    grid=("(n + 255)//256", "1", "1"),
    block=("256", "1", "1"),
    shared_bytes="1024",
    origins=("/enc/Add", "/enc/Mul"),
    flops="2*n",
    far_bytes="8*n",
    text="b = a*2 + 1",
)
LOOP = m.Loop(
    body=(
        m.Launch(0, (2, 2)),
        m.If(3, then=(m.Copy(0, 2),), otherwise=(m.Fill(2), m.Refuse(2, "why"))),
    ),
    trips=4,
    condition=None,
    iteration=5,
    count=0,
    carried=(m.Carried(0, 1, 2, 3),),
    scan_inputs=(m.Scanned(0, 1, axis=1, reverse=True),),
)
BUFFERS = (
    m.Buffer("x", "f32", ("n",), "4*n", "input", key="x"),
    m.Buffer("y", "f32", ("n",), "4*n", "output", key="y"),
    m.Buffer("t", "f32", ("n", "2"), "8*n", "arena", first=0, last=4),
    m.Buffer("v", "f32", ("n",), "4*n", "arena", alias_of=2, offset="4*n", alignment=4),
    m.Buffer("w", "i64", (), "8", "constant", key="w"),
    m.Buffer("i", "i64", (), "8", "arena"),
)
MANIFEST = m.Manifest(
    producer="unistack-aot 0",
    model="tiny",
    dims=(m.Dim("n", low=1, high=64, typical=8),),
    inputs=(m.Tensor("x", "f32", ("n",)),),
    outputs=(m.Tensor("y", "f32", ("n",)),),
    variants=(
        m.Variant(
            "cpu:x86-64-v3",
            "cpu/x86-64-v3.so",
            BUFFERS,
            (KERNEL,),
            (m.Fill(2, once=True), m.Launch(0, (0, 1)), LOOP),
            needs=("avx2",),
            weights=("weights.safetensors",),
            measured=(m.Measured("k", 5),),
            certificates=(m.Certificate((m.DimValue("n", 8),), 64, 64, 96),),
        ),
    ),
    golden=(m.Golden("g", "golden.safetensors", (m.Tolerance("y", 1e-5, 1e-6),)),),
    options=("precision=f32",),
)
MEMBERS = ("cpu/x86-64-v3.so", "weights.safetensors", "golden.safetensors")


def test_round_trip_keeps_everything() -> None:
    assert from_bytes(to_bytes(MANIFEST)) == MANIFEST


def test_bytes_are_deterministic() -> None:
    assert to_bytes(MANIFEST) == to_bytes(replace(MANIFEST))


def test_optional_zero_is_not_none() -> None:
    loop = from_bytes(to_bytes(MANIFEST)).variants[0].steps[2]
    assert isinstance(loop, m.Loop)
    assert (loop.count, loop.condition) == (0, None)


def test_newer_version_is_refused() -> None:
    with pytest.raises(BadPackage, match="format version 2, this runtime reads up to 1"):
        from_bytes(to_bytes(replace(MANIFEST, version=2)))


def test_damaged_bytes_are_refused() -> None:
    with pytest.raises(BadPackage, match="the manifest is not readable"):
        from_bytes(to_bytes(MANIFEST)[:-3])


def test_walk_numbers_steps_in_pre_order() -> None:
    kinds = [type(step).__name__ for step in m.walk(MANIFEST.variants[0].steps)]
    assert kinds == ["Fill", "Launch", "Loop", "Launch", "If", "Copy", "Fill", "Refuse"]
    assert len(MANIFEST.variants[0].launches) == 2


def test_consistent_manifest_has_no_faults() -> None:
    assert faults(MANIFEST, MEMBERS) == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"steps": (m.Launch(1, ()),)}, "a launch names the missing kernel 1"),
        ({"steps": (m.Launch(0, (0,)),)}, "a launch of k0 gives 1 buffers for 2 pointers"),
        ({"steps": (m.Copy(0, 9),)}, "a copy step uses the missing buffer 9"),
        ({"code": "cpu/other.so"}, "needs the missing member 'cpu/other.so'"),
        ({"buffers": BUFFERS[1:]}, "its input buffers are [], the signature has ['x']"),
        (
            {"buffers": (*BUFFERS, m.Buffer("z", "f32", (), "4", "arena", alias_of=3))},
            "buffer 6 (z) must be a view of a buffer that is not a view, not of 3",
        ),
        (
            {"buffers": (*BUFFERS, m.Buffer("z", "f32", (), "4", "arena", alignment=12))},
            "buffer 6 (z) has alignment 12, not a power of two",
        ),
        (
            {"kernels": (replace(KERNEL, params=(m.Param("q", "dim32"),)),)},
            "kernel k0 needs the unknown dimension 'q'",
        ),
    ],
)
def test_contradictions_are_named(change: dict[str, object], sentence: str) -> None:
    broken = replace(MANIFEST, variants=(replace(MANIFEST.variants[0], **change),))
    assert any(sentence in fault for fault in faults(broken, MEMBERS))


def test_generated_code_matches_the_schema(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools regenerates the schema")
    out = tmp_path / "schema.pb"
    source = "unistack_aot/artifact/manifest.proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={out}"]
    subprocess.run([*command, source], cwd=ROOT, check=True)
    (fresh,) = FileDescriptorSet.FromString(out.read_bytes()).file
    committed = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(committed)
    assert _plain(fresh) == _plain(committed)


def _plain(schema: FileDescriptorProto) -> FileDescriptorProto:
    """Without the JSON names, which protoc adds to descriptor sets only."""
    for message in schema.message_type:
        for field in message.field:
            field.ClearField("json_name")
    return schema
