"""The list of all models: recipes in small and full size, published files, each with its inputs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from onnx import ModelProto

from models import (
    bert,
    detector,
    generator,
    gpt2,
    llama,
    mobilenet,
    recurrent,
    resnet,
    resnet_int8,
    speech,
    unet,
    vit,
)
from models.attention import Form
from models.feeds import Feeds, draw
from models.files import FILES, ModelFile
from models.seeded import seeded
from models.summary import model_inputs
from unistack_aot.base.errors import BadInput

Kind = Literal["small", "full", "file"]
_NAME = re.compile(r"[^\s+*/%()-]+\Z")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Entry:
    """One model: how to get it, and named cases that each give a set of inputs from a seed.

    kind: "small" runs in milliseconds, "full" has its real size, "file" is published; `about` says
    which architecture it is or where it is published.
    The first case is the usual one; further cases bind dynamic dimensions to other sizes.
    """

    name: str
    kind: Kind
    about: str
    load: Callable[[], ModelProto]
    cases: Mapping[str, Callable[[int], Feeds]]

    def feeds(self, case: str | None = None, seed: int = 0) -> Feeds:
        """Return the inputs of a case, by default the first. Raises BadInput for others."""
        chosen = next(iter(self.cases)) if case is None else case
        if chosen not in self.cases:
            raise BadInput(
                f"no case {chosen!r}", at=self.name, hint=f"use one of {', '.join(self.cases)}"
            )
        return self.cases[chosen](seed)

    def dims(self, model: ModelProto | None = None) -> dict[str, tuple[int, ...]]:
        """Return the sizes that the cases give to each named dimension, smallest first."""
        sizes: dict[str, set[int]] = {}
        inputs = model_inputs(self.load() if model is None else model)
        for make in self.cases.values():
            arrays = make(0)
            for value in inputs:
                axes = value.type.tensor_type.shape.dim
                for axis, size in zip(axes, arrays[value.name].shape, strict=True):
                    # "?" means unknown, each time anew; expressions follow from other dimensions
                    if axis.dim_param != "?" and _NAME.match(axis.dim_param):
                        sizes.setdefault(axis.dim_param, set()).add(size)
        return {name: tuple(sorted(found)) for name, found in sizes.items()}


def entry(name: str) -> Entry:
    """Return the entry of that name. Raises BadInput, naming close ones."""
    for item in CATALOGUE:
        if item.name == name:
            return item
    close = [item.name for item in CATALOGUE if name in item.name or item.name in name]
    raise BadInput(
        f"no model named {name!r}",
        at="models/catalogue.py",
        hint=f"try {', '.join(close[:6])}" if close else "see scripts/models.py list",
    )


def _recipe(
    name: str,
    kind: Kind,
    build: Callable[[C], ModelProto],
    feeds: Callable[[C, int], Feeds],
    config: C,
    **others: C,
) -> Entry:
    """Return an entry whose cases feed the same graph with the sizes of other configurations."""
    cases = {"usual": partial(feeds, config)}
    cases |= {case: partial(feeds, other) for case, other in others.items()}
    recipe = sys.modules[build.__module__].__doc__ or ""
    return Entry(name, kind, recipe.split("\n")[0].rstrip("."), partial(build, config), cases)


def _images() -> tuple[Entry, ...]:
    def net(name: str, kind: Kind, config: resnet.Config, **others: resnet.Config) -> Entry:
        return _recipe(name, kind, resnet.build, resnet.feeds, config, **others)

    def mobile(name: str, kind: Kind, config: mobilenet.Config) -> Entry:
        return _recipe(name, kind, mobilenet.build, mobilenet.feeds, config)

    small = resnet.Config.small()
    open_batch = replace(small, dynamic=True)
    open50 = replace(resnet.Config.full50(), dynamic=True)
    return (
        net("resnet_small", "small", small),
        net("resnet_small_dynamic", "small", open_batch, batch3=replace(open_batch, batch=3)),
        net("resnet_small_bottleneck", "small", replace(small, bottleneck=True, opset=13)),
        net("resnet18", "full", resnet.Config.full()),
        net("resnet50", "full", resnet.Config.full50()),
        net("resnet50_dynamic", "full", open50, batch4=replace(open50, batch=4)),
        mobile("mobilenet_v2_small", "small", mobilenet.Config.small_v2()),
        mobile("mobilenet_v3_small", "small", mobilenet.Config.small()),
        mobile("mobilenet_v2", "full", mobilenet.Config.full_v2()),
        mobile("mobilenet_v3_large", "full", mobilenet.Config.full()),
    )


def _dense_images() -> tuple[Entry, ...]:
    def detect(name: str, kind: Kind, config: detector.Config) -> Entry:
        return _recipe(name, kind, detector.build, detector.feeds, config)

    def segment(name: str, kind: Kind, config: unet.Config, **others: unet.Config) -> Entry:
        return _recipe(name, kind, unet.build, unet.feeds, config, **others)

    def quantised(name: str, kind: Kind, config: resnet_int8.Config) -> Entry:
        return _recipe(name, kind, resnet_int8.build, resnet_int8.feeds, config)

    def see(name: str, kind: Kind, config: vit.Config, **others: vit.Config) -> Entry:
        return _recipe(name, kind, vit.build, vit.feeds, config, **others)

    def hear(name: str, kind: Kind, config: speech.Config, **others: speech.Config) -> Entry:
        return _recipe(name, kind, speech.build, speech.feeds, config, **others)

    any_talk = replace(speech.Config.small(), dynamic=True, norm="decomposed")
    free = replace(unet.Config.small(), dynamic=True)
    other = replace(free, batch=2, height=20, columns=28)
    linear = replace(free, upsample="linear")
    any_batch = replace(vit.Config.small(), dynamic=True, norm="decomposed")
    return (
        detect("detector_small", "small", detector.Config.small()),
        detect("detector", "full", detector.Config.full()),
        segment("unet_small", "small", unet.Config.small()),
        segment("unet_small_dynamic", "small", free, other=other),
        segment("unet", "full", unet.Config.full()),
        segment("unet_small_linear", "small", linear, odd=replace(linear, height=22, columns=27)),
        detect("detector_small_suppress", "small", replace(detector.Config.small(), suppress=True)),
        hear("speech_small", "small", speech.Config.small()),
        hear("speech_small_dynamic", "small", any_talk, batch3=replace(any_talk, batch=3)),
        hear("whisper_tiny_encoder", "full", speech.Config.full()),
        quantised("resnet_int8_small", "small", resnet_int8.Config.small()),
        quantised("resnet18_int8", "full", resnet_int8.Config.full()),
        see("vit_small", "small", vit.Config.small()),
        see("vit_small_dynamic", "small", any_batch, batch3=replace(any_batch, batch=3)),
        see("vit_b16", "full", vit.Config.full()),
    )


def _encoders() -> tuple[Entry, ...]:
    def encode(name: str, kind: Kind, config: bert.Config, **others: bert.Config) -> Entry:
        return _recipe(name, kind, bert.build, bert.feeds, config, **others)

    small, full = bert.Config.small(), bert.Config.full()
    free = replace(small, dynamic=True, norm="decomposed", form=Form("mul", "where"))
    split = replace(small, gelu="op", form=Form("query", "add", "split"), opset=20)
    both = replace(
        small, norm="decomposed", form=Form("both", "where", "gather"), batch=3, opset=18
    )
    full_free = replace(full, dynamic=True, norm="decomposed")
    longer = replace(full_free, batch=2, length=200)
    return (
        encode("bert_small", "small", small),
        encode("bert_small_dynamic", "small", free, other=replace(free, batch=1, length=17)),
        encode("bert_small_split", "small", split),
        encode("bert_small_both", "small", both),
        encode("bert_small_f16", "small", replace(small, real="float16")),
        encode("bert_small_int8", "small", replace(small, int8_linear=True)),
        encode("bert_base", "full", full),
        encode("bert_base_int8", "full", replace(full, int8_linear=True)),
        encode("bert_base_dynamic", "full", full_free, longer=longer),
    )


def _decoders() -> tuple[Entry, ...]:
    def decode(name: str, kind: Kind, config: gpt2.Config) -> Entry:
        longer = replace(config, batch=1, length=config.length * 2 + 1)
        others = {"longer": longer} if config.dynamic else {}
        return _recipe(name, kind, gpt2.build, gpt2.feeds, config, **others)

    small, llama_small, llama_full = gpt2.Config.small(), llama.Config.small(), llama.Config.full()
    return (
        decode("gpt2_small", "small", small),
        decode("gpt2_small_trilu", "small", replace(small, causal="trilu", tied=False)),
        decode("gpt2_small_range", "small", replace(small, causal="range", norm="decomposed")),
        decode("gpt2_small_fixed", "small", replace(small, dynamic=False)),
        decode("gpt2", "full", gpt2.Config.full()),
        _recipe(
            "llama_small",
            "small",
            llama.build,
            llama.feeds,
            llama_small,
            prompt=replace(llama_small, past=0, length=6),
            step=replace(llama_small, batch=1, past=9, length=1),
        ),
        _recipe(
            "llama_135m",
            "full",
            llama.build,
            llama.feeds,
            llama_full,
            prompt=replace(llama_full, past=0, length=32),
        ),
    )


def _recurrent() -> tuple[Entry, ...]:
    def net(name: str, kind: Kind, config: recurrent.Config, **others: recurrent.Config) -> Entry:
        return _recipe(name, kind, recurrent.build, recurrent.feeds, config, **others)

    def text(name: str, kind: Kind, config: generator.Config, **others: generator.Config) -> Entry:
        return _recipe(name, kind, generator.build, generator.feeds, config, **others)

    loop = generator.Config.small()
    scan = replace(loop, form="scan", opset=18)
    small, gru = recurrent.Config.small(), recurrent.Config.small_gru()
    free = replace(small, dynamic=True, states="inputs", lengths=True)
    both_ways = replace(gru, bidirectional=True, dynamic=True, states="zeros")
    return (
        net("lstm_small", "small", small),
        net("lstm_small_dynamic", "small", free, other=replace(free, batch=1, length=11)),
        net("gru_small", "small", gru),
        net("gru_small_dynamic", "small", both_ways, other=replace(both_ways, batch=1, length=8)),
        text("generator_small_loop", "small", loop, other=replace(loop, batch=1, steps=9)),
        text("generator_small_scan", "small", scan, other=replace(scan, batch=1, steps=9)),
        text("generator_loop", "full", generator.Config.full()),
        net("lstm", "full", recurrent.Config.full()),
        net("gru", "full", recurrent.Config.full_gru()),
    )


def _published(file: ModelFile) -> Entry:
    cases = {name: partial(draw, inputs) for name, inputs in file.cases.items()}
    return Entry(file.name, "file", str(file.source), file.load, cases)


def _reseeded(file: ModelFile) -> Entry:
    """A file whose own weights are placeholders, with seeded weights: the same network, live."""
    name = file.name.replace("light_", "seeded_")
    about = f"{file.name} with seeded weights in place of its constants"
    return Entry(name, "full", about, lambda: seeded(file.load()), _published(file).cases)


CATALOGUE: tuple[Entry, ...] = (
    *_images(),
    *_dense_images(),
    *_encoders(),
    *_decoders(),
    *_recurrent(),
    *(_published(file) for file in FILES),
    *(_reseeded(file) for file in FILES if file.name.startswith("light_")),
)
REFUSED = frozenset({"detector_small_suppress", "generator_small_loop", "generator_loop"})
"""Models that no target compiles: the extents of their results depend on data."""
SMALL: tuple[Entry, ...] = tuple(
    item for item in CATALOGUE if item.kind == "small" and item.name not in REFUSED
)
"""The small models that every stage and every target takes."""
NOT_JUDGED: Mapping[tuple[str, str], str] = {
    (file.name, device): f"placeholder weights: see {file.name.replace('light_', 'seeded_')}"
    for file in FILES
    if file.name.startswith("light_")
    for device in ("cpu", "emulator")
}
"""Models that are not judged on a device although others of their kind are, and why."""
