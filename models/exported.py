"""PyTorch, torchvision and transformers architectures with seeded weights, in small configurations.

Only `scripts/exports.py` imports this: it needs torch, torchvision and transformers, which are no
dependencies of the project. Not here: exporting, compiling, judging.
"""

# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torchvision
import transformers
from torch import nn


@dataclass(frozen=True, slots=True)
class Exported:
    """What to export: a module, its arguments by name, and the axes that may vary by argument."""

    module: nn.Module
    arguments: Mapping[str, torch.Tensor]
    free: Mapping[str, Mapping[int, str]]


Recipe = Callable[[], Exported]
IMAGE = {0: "batch"}
TOKENS = {0: "batch", 1: "sequence"}


class Picked(nn.Module):
    """A transformers model as a function of named tensors to one tensor."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], output: str) -> None:
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        """The chosen output."""
        return getattr(self.model(**dict(zip(self.names, values, strict=True))), self.output)


def image(name: str, size: int = 64, **options: Any) -> Recipe:
    """A torchvision classifier on square images; statistics of normalisations are not trivial."""

    def make() -> Exported:
        model = torchvision.models.get_model(name, weights=None, **options)
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                statistics = layer.state_dict()  # shares their memory
                statistics["running_mean"].uniform_(-0.2, 0.2)
                statistics["running_var"].uniform_(0.5, 1.5)
        return Exported(model, {"x": torch.randn(2, 3, size, size)}, {"x": IMAGE})

    return make


def text(kind: str, config: str, output: str = "last_hidden_state", **options: Any) -> Recipe:
    """A transformers model on token numbers and a mask with padding."""

    def make() -> Exported:
        made = getattr(transformers, config)(**{**SMALL, **options})
        made._attn_implementation = "eager"
        model = getattr(transformers, kind)(made)
        ids, mask = torch.randint(3, 90, (2, 11)), torch.ones(2, 11, dtype=torch.int64)
        mask[1, 8:] = 0
        arguments: dict[str, torch.Tensor] = {"input_ids": ids, "attention_mask": mask}
        names = tuple(arguments)
        return Exported(Picked(model, names, output), arguments, dict.fromkeys(names, TOKENS))

    return make


def pixels(kind: str, config: str, output: str, size: int, **options: Any) -> Recipe:
    """A transformers model on images."""

    def make() -> Exported:
        made = getattr(transformers, config)(**options)
        made._attn_implementation = "eager"
        model = Picked(getattr(transformers, kind)(made), ("pixel_values",), output)
        return Exported(
            model, {"pixel_values": torch.randn(2, 3, size, size)}, {"pixel_values": IMAGE}
        )

    return make


def plain(module: Callable[[], nn.Module], *shape: int, free: Mapping[int, str]) -> Recipe:
    """A module of one float argument."""
    return lambda: Exported(module(), {"x": torch.randn(*shape)}, {"x": free})


class Recurrent(nn.Module):
    """A bidirectional GRU and an LSTM with a projection head."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(12, 16, 2, batch_first=True, bidirectional=True)
        self.lstm = nn.LSTM(32, 24, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits per step."""
        return self.head(self.lstm(self.gru(x)[0])[0])


class Resampled(nn.Module):
    """Every way of making an image larger or smaller that exporters know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All ways, added up."""
        up = nn.functional.interpolate
        return (
            up(x, scale_factor=2, mode="nearest")
            + up(x, scale_factor=2, mode="bilinear", align_corners=False)
            + up(x, size=(24, 40), mode="bilinear", align_corners=True)
            + up(x, scale_factor=2, mode="bicubic", align_corners=False)
            + nn.functional.pad(nn.functional.pixel_shuffle(x, 2), (1, 1, 2, 2)).mean()
            + nn.functional.adaptive_avg_pool2d(x, (3, 5)).amax()
        )


class Indexed(nn.Module):
    """Slices, gathers, masks, rolls, sorted and cumulative values, einsum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Many small steps."""
        a = x[:, 1::2].roll(1, -1) * x.flip(1)[:, ::2]
        b = torch.where(a > 0, a, a.cumsum(-1)).masked_fill(a.abs() < 0.1, -3.0)
        top, place = b.topk(3, -1)
        chosen = torch.gather(b, -1, place) + top
        mixed = torch.einsum("bik,bjk->bij", b, b) + b.var(-1, keepdim=True)
        return torch.cat([chosen, mixed, b.clamp(min=-1).prod(-1, keepdim=True)], -1).tril()


def transformer() -> nn.Module:
    """Two encoder layers of PyTorch's own."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


SMALL: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
DECODER: dict[str, Any] = {"num_key_value_heads": 2, "use_cache": False}
RECIPES: dict[str, Recipe] = {
    "recurrent": plain(Recurrent, 2, 7, 12, free={0: "batch"}),
    "resampled": plain(Resampled, 2, 4, 12, 20, free={0: "batch"}),
    "indexed": plain(Indexed, 2, 8, 10, free={0: "batch"}),
    "transformer": plain(transformer, 2, 9, 32, free={0: "batch", 1: "sequence"}),
    "bert": text("BertModel", "BertConfig"),
    "roberta": text("RobertaModel", "RobertaConfig"),
    "albert": text("AlbertModel", "AlbertConfig", embedding_size=16),
    "electra": text("ElectraModel", "ElectraConfig", embedding_size=16),
    "gpt2": text("GPT2LMHeadModel", "GPT2Config", "logits", n_positions=32, use_cache=False),
    "llama": text("LlamaForCausalLM", "LlamaConfig", "logits", **DECODER),
    "qwen2": text("Qwen2ForCausalLM", "Qwen2Config", "logits", **DECODER),
    "gemma": text("GemmaForCausalLM", "GemmaConfig", "logits", head_dim=8, **DECODER),
    "vit": pixels(
        "ViTModel", "ViTConfig", "last_hidden_state", 32, image_size=32, patch_size=8,
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    ),
    "segformer": pixels(
        "SegformerForSemanticSegmentation", "SegformerConfig", "logits", 64, depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=32,
    ),
    "convnextv2": pixels(
        "ConvNextV2Model", "ConvNextV2Config", "last_hidden_state", 64, depths=[1, 1, 2, 1],
        hidden_sizes=[8, 16, 24, 32],
    ),
    "mobilenet_v3_small": image("mobilenet_v3_small"),
    "shufflenet_v2_x0_5": image("shufflenet_v2_x0_5"),
    "efficientnet_b0": image("efficientnet_b0"),
    "regnet_y_400mf": image("regnet_y_400mf"),
    "squeezenet1_1": image("squeezenet1_1"),
    "swin_t": image("swin_t"),
    "mnasnet0_5": image("mnasnet0_5"),
    "resnet18": image("resnet18"),
    "densenet121": image("densenet121"),
}  # fmt: skip
