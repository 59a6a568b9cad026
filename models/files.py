"""Published model files and their inputs: OCR, voice activity, file types, image networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from models.feeds import Draw, Fixed, Ids, Normal, Page
from models.fetch import PackageFile, WheelFile

RAPIDOCR = "rapidocr-onnxruntime==1.4.4"
SILERO = "silero-vad==6.2.3"
MAGIKA = "magika==1.0.3"
LIGHT = "backend/test/data/light"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A published ONNX file: where it comes from, and input sets by case name."""

    name: str
    source: WheelFile | PackageFile
    cases: Mapping[str, Mapping[str, Draw]]

    def path(self) -> Path:
        """Return the file on disk. Raises ModelUnavailable."""
        return self.source.path()

    def load(self) -> onnx.ModelProto:
        """Return the model read from disk. Raises ModelUnavailable."""
        return onnx.load(str(self.path()))


def _images(*shapes: tuple[int, int, int, int]) -> dict[str, dict[str, Draw]]:
    """Return cases for models that look for text in x[n, 3, height, width]."""
    return {"x".join(map(str, shape)): {"x": Page(shape)} for shape in shapes}


def _ocr() -> tuple[ModelFile, ...]:
    folder = "rapidocr_onnxruntime/models"
    return (
        ModelFile(
            "ppocr_v4_det",
            WheelFile(RAPIDOCR, f"{folder}/ch_PP-OCRv4_det_infer.onnx"),
            _images((1, 3, 320, 320), (1, 3, 96, 224), (2, 3, 160, 64)),
        ),
        ModelFile(
            "ppocr_v4_rec",
            WheelFile(RAPIDOCR, f"{folder}/ch_PP-OCRv4_rec_infer.onnx"),
            _images((1, 3, 48, 320), (2, 3, 48, 160)),
        ),
        ModelFile(
            "ppocr_v2_cls",
            WheelFile(RAPIDOCR, f"{folder}/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
            _images((1, 3, 48, 192), (3, 3, 48, 192)),
        ),
    )


def _voice(batch: int, samples: int, rate: int | None) -> dict[str, Draw]:
    """Return one call's inputs: audio with its context, the LSTM state, and the rate if taken."""
    inputs: dict[str, Draw] = {
        "input": Normal((batch, samples), 0.1),
        "state": Normal((2, batch, 128), 0.1),
    }
    return inputs if rate is None else {**inputs, "sr": Fixed(rate)}


def _voice_activity() -> tuple[ModelFile, ...]:
    def file(name: str, cases: Mapping[str, Mapping[str, Draw]]):
        stem = "silero_vad" if name == "base" else f"silero_vad_{name}"
        member = f"silero_vad/data/{stem}.onnx"
        return ModelFile(f"silero_vad_{name}", WheelFile(SILERO, member), cases)

    # A call carries 64 samples of context before 512 new ones at 16 kHz, and half of both at 8 kHz.
    wide, narrow, pair = _voice(1, 576, 16000), _voice(1, 288, 8000), _voice(2, 576, 16000)
    both = {"16k": wide, "8k": narrow, "16k_batch2": pair}
    sequence = {
        f"{rows}rows": {
            "input": Normal((rows, 576), 0.1),
            "h": Normal((1, 1, 128), 0.1),
            "c": Normal((1, 1, 128), 0.1),
        }
        for rows in (4, 7)
    }
    bare = {"16k": _voice(1, 576, None)}
    return (
        file("base", both),
        file("16k_op15", {"16k": wide, "16k_batch2": pair}),
        file("16k_sequence", sequence),
        file("half", {**bare, "16k_batch2": _voice(2, 576, None)}),
        file("op18_ifless", both),
        file("openvino_16k", bare),
    )


def _file_types() -> ModelFile:
    cases: dict[str, dict[str, Draw]] = {
        f"batch{rows}": {"bytes": Ids((rows, 2048), 257, dtype="int32")} for rows in (1, 3)
    }
    member = "magika/models/standard_v3_3/model.onnx"
    return ModelFile("magika_v3_3", WheelFile(MAGIKA, member), cases)


def _light() -> tuple[ModelFile, ...]:
    inputs = {
        "bvlc_alexnet": "data_0",
        "densenet121": "data_0",
        "inception_v1": "data_0",
        "inception_v2": "data_0",
        "resnet50": "gpu_0/data_0",
        "shufflenet": "gpu_0/data_0",
        "squeezenet": "data_0",
        "vgg19": "data_0",
        "zfnet512": "gpu_0/data_0",
    }
    return tuple(
        ModelFile(
            f"light_{name}",
            PackageFile("onnx", f"{LIGHT}/light_{name}.onnx"),
            {"image": {feed: Normal((1, 3, 224, 224))}},
        )
        for name, feed in inputs.items()
    )


FILES: tuple[ModelFile, ...] = (*_ocr(), *_voice_activity(), _file_types(), *_light())
