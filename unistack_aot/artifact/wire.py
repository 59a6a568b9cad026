"""The manifest's protobuf form: dataclasses to bytes and back.

Not here: what the fields mean (manifest.py). Dataclass and message fields have equal names, so one
pair of functions converts every class; the only special case is `Step`, a union here and a oneof
there.
"""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError, Message

from unistack_aot.artifact import manifest as model
from unistack_aot.artifact import manifest_pb2 as pb
from unistack_aot.base.errors import BadPackage

_STEP_FIELDS = {
    "launch": model.Launch,
    "if_": model.If,
    "loop": model.Loop,
    "copy": model.Copy,
    "fill": model.Fill,
    "refuse": model.Refuse,
}
_STEP_NAMES = {cls: name for name, cls in _STEP_FIELDS.items()}


def to_bytes(manifest: model.Manifest) -> bytes:
    """The manifest as deterministic protobuf bytes."""
    message = pb.Manifest()
    _fill(message, manifest)
    return message.SerializeToString(deterministic=True)


def from_bytes(data: bytes) -> model.Manifest:
    """The manifest in protobuf bytes; `BadPackage` if they are damaged or of a newer format."""
    message = pb.Manifest()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadPackage(
            f"the manifest is not readable ({error})",
            hint="copy the package again, or compile the model again",
        ) from error
    if not 1 <= message.version <= model.FORMAT_VERSION:
        raise BadPackage(
            f"the package has format version {message.version}, "
            f"this runtime reads up to {model.FORMAT_VERSION}",
            hint="install a newer unistack_aot, or compile the model with this version",
        )
    return _read(model.Manifest, message)


def _fill(message: Any, value: Any) -> None:
    for name, _, repeated, nested in _layout(type(value)):
        item = getattr(value, name)
        if item is None:
            continue
        if repeated:
            field = getattr(message, name)
            if nested is None:
                field.extend(item)
            for element in item if nested is not None else ():
                _fill_element(field.add(), element, nested)
        else:
            setattr(message, name, item)


def _fill_element(message: Any, element: Any, nested: Any) -> None:
    if nested is not _STEP:
        _fill(message, element)
        return
    target = getattr(message, _STEP_NAMES[type(element)])
    target.SetInParent()
    _fill(target, element)


def _read(cls: Any, message: Message) -> Any:
    values: dict[str, Any] = {}
    for name, optional, repeated, nested in _layout(cls):
        if optional and not message.HasField(name):
            values[name] = None
            continue
        item = getattr(message, name)
        if nested is _STEP:
            item = tuple(_read_step(element) for element in item)
        elif nested is not None:
            item = tuple(_read(nested, element) for element in item)
        elif repeated:
            item = tuple(item)
        values[name] = item
    return cls(**values)


def _read_step(message: Any) -> model.Step:
    name = message.WhichOneof("step")
    if name is None:
        raise BadPackage(
            "the manifest has a step of an unknown kind",
            hint="install a newer unistack_aot, or compile the model with this version",
        )
    return _read(_STEP_FIELDS[name], getattr(message, name))


_STEP = object()


@cache
def _layout(cls: type) -> tuple[tuple[str, bool, bool, Any], ...]:
    """For each field: name, optional?, repeated?, class of nested messages (`_STEP`, None)."""
    hints: dict[str, Any] = typing.get_type_hints(cls)
    rows: list[tuple[str, bool, bool, Any]] = []
    for field in dataclasses.fields(cls):
        hint: Any = hints[field.name]
        optional = type(None) in typing.get_args(hint)
        repeated = typing.get_origin(hint) is tuple
        nested: Any = None
        if repeated:
            element = typing.get_args(hint)[0]
            if dataclasses.is_dataclass(element):
                nested = element
            elif element == model.Step:
                nested = _STEP
        rows.append((field.name, optional, repeated, nested))
    return tuple(rows)
