"""Reading a model: path, bytes or ModelProto, to a checked ModelProto. Not here: tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx
from google.protobuf.message import DecodeError

from unistack_aot.base.errors import BadInput, BadModel, Unsupported

Model: TypeAlias = "str | Path | bytes | onnx.ModelProto"

NEWEST_IR = 14
NEWEST_OPSET = 28
OFFICIAL = "ai.onnx"


@dataclass(frozen=True)
class Source:
    """A parsed model, what to call it, and the folder that external data is relative to."""

    proto: onnx.ModelProto
    name: str
    folder: Path | None
    opsets: dict[str, int]


def read_model(model: Model) -> Source:
    """Parse and check the outermost layer of a model; BadInput for a path, BadModel for content."""
    if isinstance(model, onnx.ModelProto):
        return _checked(model, model.graph.name or "model", None)
    if isinstance(model, bytes):
        return _checked(_parse(model, "the given bytes"), "model", None)
    path = Path(model)
    if not path.is_file():
        raise BadInput(f"there is no file {path}", hint="give the path of an .onnx file")
    return _checked(_parse(path.read_bytes(), str(path)), path.name, path.parent)


def _parse(content: bytes, where: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    if not content:
        raise BadModel("the model is empty", at=where, hint="export it again")
    try:
        proto.ParseFromString(content)
    except DecodeError:
        raise BadModel(
            f"not an ONNX model, or cut short after {len(content)} bytes",
            at=where,
            hint="the file must be a serialised ModelProto; copy or export it again",
        ) from None
    return proto


def _checked(proto: onnx.ModelProto, name: str, folder: Path | None) -> Source:
    if not proto.HasField("graph"):
        raise BadModel("the model holds no graph", at=name, hint="export it again")
    if proto.ir_version > NEWEST_IR:
        raise Unsupported(
            f"IR version {proto.ir_version}, the newest known is {NEWEST_IR}",
            at=name,
            hint="export with an older onnx package",
        )
    return Source(proto, name, folder, read_opsets(proto.opset_import, proto.ir_version, name))


def read_opsets(imports: object, ir_version: int, name: str) -> dict[str, int]:
    """Opset versions by domain, "" for the official one."""
    found: dict[str, int] = {}
    for entry in imports:  # type: ignore[attr-defined]
        domain = "" if entry.domain == OFFICIAL else entry.domain
        if found.setdefault(domain, entry.version) != entry.version:
            raise BadModel(
                f"two opset versions of domain {entry.domain!r}", at=name, hint="export it again"
            )
    if not found and ir_version < 3:
        found[""] = 1
    if not found:
        raise BadModel("the model imports no opset", at=name, hint="set opset_import")
    if found.get("", 1) > NEWEST_OPSET:
        raise Unsupported(
            f"opset {found['']}, the newest known is {NEWEST_OPSET}",
            at=name,
            hint=f"export with opset {NEWEST_OPSET} or older",
        )
    return found
