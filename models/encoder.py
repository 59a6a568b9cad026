"""The pre-norm transformer layer that vision and speech encoders share."""

from __future__ import annotations

from dataclasses import dataclass

from models import attention, layers
from models.attention import Form, Rows
from models.builder import GraphBuilder, Value
from models.layers import Norm


@dataclass(frozen=True, slots=True)
class Block:
    """Sizes and written form of one layer."""

    hidden: int
    heads: int
    norm: Norm
    form: Form
    epsilon: float = 1e-5


def pre_norm_layer(g: GraphBuilder, x: Value, rows: Rows, block: Block) -> Value:
    """Return y + feed_forward(norm(y)) for y = x + attention(norm(x)), of x[b, s, hidden]."""
    size, width = block.hidden, block.hidden // block.heads
    with g.scope("norm1"):
        y = layers.layer_norm(g, x, size, block.norm, block.epsilon)
    with g.scope("attn"):
        query, key, value = attention.project(g, y, rows, size, block.heads, block.form)
        y = attention.mix(g, query, key, value, width, block.form, mask="")
        with g.scope("proj"):
            y = layers.linear(g, attention.join_heads(g, y, rows, size), (size, size))
    x = g.op("Add", x, y)
    with g.scope("norm2"):
        y = layers.layer_norm(g, x, size, block.norm, block.epsilon)
    with g.scope("mlp/fc1"):
        y = layers.gelu_erf(g, layers.linear(g, y, (size, 4 * size)))
    with g.scope("mlp/fc2"):
        return g.op("Add", x, layers.linear(g, y, (4 * size, size)))
