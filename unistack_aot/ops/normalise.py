"""Normalisations: compositions of folds and pointwise maps. Not here: softmax (softmax.py)."""

from __future__ import annotations

from unistack_aot.aicf.node import Node
from unistack_aot.ops.compare import Equal, Where
from unistack_aot.ops.convert import converted
from unistack_aot.ops.convolve import per_channel
from unistack_aot.ops.core import constant, item
from unistack_aot.ops.fold import Moments, mean_of, reduced, squared, widened
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.pointwise import Abs, Add, Div, Mul, Pow, Rsqrt, Sqrt, Sub
from unistack_aot.ops.reindex import axis_of, reshape
from unistack_aot.ops.window import WindowFold, sliding


def _add(x: Node, y: Node) -> Node:
    return Node(Add(), (x, y))


def _mul(x: Node, y: Node) -> Node:
    return Node(Mul(), (x, y))


def inverse_deviation(variance: Node, epsilon: float) -> Node:
    """1 / sqrt(variance + epsilon)."""
    return Node(Rsqrt(), (_add(variance, constant(epsilon, variance)),))


def standardised(x: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node, Node]:
    """((x - mean) / sqrt(variance + epsilon), mean, 1 / sqrt(variance + epsilon)) over `axes`."""
    moments = Node(Moments(axes), (x,))
    mean, scale = item(moments, 0), inverse_deviation(item(moments, 1), epsilon)
    return _mul(Node(Sub(), (x, mean)), scale), mean, scale


@onnx("BatchNormalization", since=7)
def import_batch_normalization(call: OnnxCall) -> Node:
    """x scale' + bias' per channel with the running statistics."""
    if call.attr("training_mode", 0) or call.outputs > 1:
        raise call.refuse("in training mode", "export the model for inference")
    if not call.attr("spatial", 1):
        raise call.refuse("with spatial=0", "export with per-channel statistics")
    call.ignore("momentum")  # of training
    x = call.arg(0)
    scale, bias, mean, variance = (widened(call.arg(k)) for k in (1, 2, 3, 4))
    factor = _mul(scale, inverse_deviation(variance, call.attr("epsilon", 1e-5)))
    shift = Node(Sub(), (bias, _mul(mean, factor)))
    rank = max(x.tensor.rank, 2)
    wide = converted(x, factor.tensor.dtype)
    result = _add(_mul(wide, per_channel(factor, rank)), per_channel(shift, rank))
    return converted(result, x.tensor.dtype)


@onnx("LayerNormalization", since=17)
def import_layer_normalization(call: OnnxCall) -> tuple[Node, ...]:
    """Standardised over the axes from `axis` on, scaled, shifted; also mean and 1 / deviation."""
    x = call.arg(0)
    axis = axis_of(call.attr("axis", -1), x.tensor.rank, call)
    axes = tuple(range(axis, x.tensor.rank))
    result, mean, scale = standardised(widened(x), axes, call.attr("epsilon", 1e-5))
    result = _mul(result, widened(call.arg(1)))
    bias = call.optional(2)
    if bias is not None:
        result = _add(result, widened(bias))
    return (converted(result, x.tensor.dtype), mean, scale)[: call.outputs]


@onnx("InstanceNormalization", since=6)
def import_instance_normalization(call: OnnxCall) -> Node:
    """Standardised over the spatial axes, then scaled and shifted per channel."""
    x = call.arg(0)
    rank = x.tensor.rank
    result, _, _ = standardised(widened(x), tuple(range(2, rank)), call.attr("epsilon", 1e-5))
    result = _mul(result, per_channel(widened(call.arg(1)), rank))
    result = _add(result, per_channel(widened(call.arg(2)), rank))
    return converted(result, x.tensor.dtype)


@onnx("GroupNormalization", since=18)
def import_group_normalization(call: OnnxCall) -> Node:
    """Standardised over groups of channels; scale and bias per group (18) or per channel (21)."""
    x = call.arg(0)
    shape = x.tensor.shape
    groups = call.attributes["num_groups"]
    grouped = (shape[0], groups, shape[1] // groups, *shape[2:])
    split = reshape(widened(x), grouped)
    axes = tuple(range(2, len(grouped)))
    result, _, _ = standardised(split, axes, call.attr("epsilon", 1e-5))

    def spread(vector: Node) -> Node:
        lead = (groups, 1) if vector.tensor.shape[0] == groups else (groups, shape[1] // groups)
        return reshape(widened(vector), (*lead, *((1,) * (len(shape) - 2))))

    result = _add(_mul(result, spread(call.arg(1))), spread(call.arg(2)))
    return converted(reshape(result, shape), x.tensor.dtype)


def root_mean_square(x: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node]:
    """(x / sqrt(mean(x^2) + epsilon), 1 / sqrt(mean(x^2) + epsilon)) over `axes`."""
    scale = inverse_deviation(mean_of(squared(x), axes), epsilon)
    return _mul(x, scale), scale


@onnx("RMSNormalization", since=23)
def import_rms_normalization(call: OnnxCall) -> Node:
    """Scaled by the inverse root mean square over the axes from `axis` on."""
    x = call.arg(0)
    axis = axis_of(call.attr("axis", -1), x.tensor.rank, call)
    axes = tuple(range(axis, x.tensor.rank))
    result, _ = root_mean_square(widened(x), axes, call.attr("epsilon", 1e-5))
    return converted(_mul(result, widened(call.arg(1))), x.tensor.dtype)


@onnx("SimplifiedLayerNormalization")
def import_simplified_layer_normalization(call: OnnxCall) -> tuple[Node, ...]:
    """RMSNormalization under onnxruntime's older name; also 1 / root mean square."""
    x = call.arg(0)
    axis = axis_of(call.attr("axis", -1), x.tensor.rank, call)
    axes = tuple(range(axis, x.tensor.rank))
    result, scale = root_mean_square(widened(x), axes, call.attr("epsilon", 1e-5))
    result = converted(_mul(result, widened(call.arg(1))), x.tensor.dtype)
    return (result, scale)[: call.outputs]


def _skipped(call: OnnxCall, bias_at: int) -> tuple[Node, Node]:
    """x + skip (+ bias) in f32, and in the operand's dtype."""
    total = _add(widened(call.arg(0)), widened(call.arg(1)))
    bias = call.optional(bias_at)
    if bias is not None:
        total = _add(total, widened(bias))
    return total, converted(total, call.arg(0).tensor.dtype)


@onnx("SkipLayerNormalization", domain="com.microsoft")
def import_skip_layer_normalization(call: OnnxCall) -> tuple[Node, ...]:
    """LayerNormalization of x + skip + bias; also mean, 1 / deviation and the sum."""
    total, rounded = _skipped(call, 4)
    last = (total.tensor.rank - 1,)
    result, mean, scale = standardised(total, last, call.attr("epsilon", 1e-12))
    result = _mul(result, widened(call.arg(2)))
    beta = call.optional(3)
    if beta is not None:
        result = _add(result, widened(beta))
    result = converted(result, rounded.tensor.dtype)
    return (result, mean, scale, rounded)[: call.outputs]


@onnx("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def import_skip_simplified_layer_normalization(call: OnnxCall) -> tuple[Node, ...]:
    """RMSNormalization of x + skip + bias; also the sum."""
    total, rounded = _skipped(call, 3)
    last = (total.tensor.rank - 1,)
    result, scale = root_mean_square(total, last, call.attr("epsilon", 1e-12))
    result = converted(_mul(result, widened(call.arg(2))), rounded.tensor.dtype)
    return (result, scale, scale, rounded)[: call.outputs]


@onnx("LpNormalization")
def import_lp_normalization(call: OnnxCall) -> Node:
    """x divided by its 1- or 2-norm along an axis; zeros stay zeros."""
    x = call.arg(0)
    axis = axis_of(call.attr("axis", -1), x.tensor.rank, call)
    wide = widened(x)
    if call.attr("p", 2) == 1:
        norm = reduced("sum", Node(Abs(), (wide,)), (axis,))
    else:
        norm = Node(Sqrt(), (reduced("sum", squared(wide), (axis,)),))
    zero = Node(Equal(), (norm, constant(0, norm)))
    divisor = Node(Where(), (zero, constant(1, norm), norm))
    return converted(Node(Div(), (wide, divisor)), x.tensor.dtype)


@onnx("LRN")
def import_lrn(call: OnnxCall) -> Node:
    """x / (bias + alpha / size sum of squares over a window of channels) ^ beta."""
    x = call.arg(0)
    size = call.attributes["size"]
    around = sliding((size,), (), (), ((size - 1) // 2,), (size // 2,))
    wide = widened(x)
    total = Node(WindowFold("sum", (1,), around), (squared(wide),))
    total = _mul(total, constant(call.attr("alpha", 1e-4) / size, total))
    base = _add(total, constant(call.attr("bias", 1.0), total))
    power = Node(Pow(), (base, constant(call.attr("beta", 0.75), base)))
    return converted(Node(Div(), (wide, power)), x.tensor.dtype)


@onnx("MeanVarianceNormalization", since=9)
def import_mean_variance_normalization(call: OnnxCall) -> Node:
    """(x - mean) / deviation over `axes`."""
    x = call.arg(0)
    axes = tuple(sorted(axis_of(a, x.tensor.rank, call) for a in call.attr("axes", (0, 2, 3))))
    wide = widened(x)
    moments = Node(Moments(axes), (wide,))
    deviation = Node(Sqrt(), (item(moments, 1),))
    deviation = _add(deviation, constant(1e-9, deviation))
    return converted(
        Node(Div(), (Node(Sub(), (wide, item(moments, 0))), deviation)), x.tensor.dtype
    )
