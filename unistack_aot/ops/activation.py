"""Pointwise activations: one formula each. Not here: softmax and normalisations (folds)."""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.aicf.node import Node
from unistack_aot.ir.formula import absolute, clamp, erf, exp, minimum, relu, sigmoid, tanh
from unistack_aot.ir.scalar import Scalar, call, where
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Pointwise, sample
from unistack_aot.ops.pointwise import Unary


@onnx("Relu")
@dataclass(frozen=True)
class Relu(Pointwise):
    """max(x, 0)."""

    samples = ("f32[7]", "f16[2,3]", "i32[4]")

    def scalar(self, x: Scalar) -> Scalar:
        """max(x, 0)."""
        return relu(x)


@onnx("Sigmoid")
@dataclass(frozen=True)
class Sigmoid(Unary):
    """1 / (1 + exp(-x))."""

    fn = "sigmoid"


@onnx("Tanh")
@dataclass(frozen=True)
class Tanh(Unary):
    """Hyperbolic tangent."""

    fn = "tanh"


@dataclass(frozen=True)
class LeakyRelu(Pointwise):
    """x, scaled by alpha where negative."""

    alpha: float = 0.01

    samples = ("f32[7]", sample("f16[2,3]", alpha=0.25))

    def scalar(self, x: Scalar) -> Scalar:
        """where(x < 0, alpha x, x)."""
        return where(x < 0, x * self.alpha, x)


@dataclass(frozen=True)
class Elu(Pointwise):
    """x, bent to alpha (exp(x) - 1) where negative."""

    alpha: float = 1.0

    samples = ("f32[7]", sample("f32[2,3]", alpha=0.25))

    def scalar(self, x: Scalar) -> Scalar:
        """where(x < 0, alpha expm1(x), x)."""
        return where(x < 0, call("expm1", x) * self.alpha, x)


@dataclass(frozen=True)
class Celu(Pointwise):
    """max(x, 0) + min(0, alpha (exp(x / alpha) - 1))."""

    alpha: float = 1.0

    samples = ("f32[7]", sample("f32[2,3]", alpha=0.25))

    def scalar(self, x: Scalar) -> Scalar:
        """The definition, without overflow for large x."""
        bent = call("expm1", minimum(x, 0) / self.alpha) * self.alpha
        return relu(x) + bent


@dataclass(frozen=True)
class Selu(Pointwise):
    """gamma x where positive, else gamma alpha (exp(x) - 1)."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    samples = ("f32[7]", sample("f32[2,3]", alpha=0.5, gamma=2.0))

    def scalar(self, x: Scalar) -> Scalar:
        """where(x > 0, gamma x, gamma alpha expm1(x))."""
        return where(x > 0, x * self.gamma, call("expm1", x) * self.alpha * self.gamma)


@onnx("Softplus")
@dataclass(frozen=True)
class Softplus(Pointwise):
    """log(1 + exp(x)), without overflow."""

    samples = ("f32[7]", "f16[2,3]")

    def scalar(self, x: Scalar) -> Scalar:
        """max(x, 0) + log1p(exp(-|x|))."""
        return softplus(x)


def softplus(x: Scalar) -> Scalar:
    """log(1 + exp(x)), without overflow."""
    return relu(x) + call("log1p", exp(-absolute(x)))


@onnx("Softsign")
@dataclass(frozen=True)
class Softsign(Pointwise):
    """x / (1 + |x|)."""

    samples = ("f32[7]",)

    def scalar(self, x: Scalar) -> Scalar:
        """x / (1 + |x|)."""
        return x / (absolute(x) + 1)


@dataclass(frozen=True)
class ThresholdedRelu(Pointwise):
    """x above alpha, else 0."""

    alpha: float = 1.0

    samples = ("f32[7]", sample("f32[7]", alpha=-0.5))

    def scalar(self, x: Scalar) -> Scalar:
        """where(x > alpha, x, 0)."""
        return where(x > self.alpha, x, 0)


@dataclass(frozen=True)
class HardSigmoid(Pointwise):
    """A ramp alpha x + beta clipped to [0, 1]."""

    alpha: float = 0.2
    beta: float = 0.5

    samples = ("f32[7]", sample("f16[2,3]", alpha=0.5, beta=0.25))

    def scalar(self, x: Scalar) -> Scalar:
        """clamp(alpha x + beta, 0, 1)."""
        return clamp(x * self.alpha + self.beta, 0, 1)


@onnx("HardSwish", since=14)
@dataclass(frozen=True)
class HardSwish(Pointwise):
    """x scaled by a clipped ramp."""

    samples = ("f32[7]", "f16[2,3]")

    def scalar(self, x: Scalar) -> Scalar:
        """x * clamp(x * (1 / 6) + 0.5, 0, 1): ONNX has a slope of 1/6."""
        return x * clamp(x * (1 / 6) + 0.5, 0, 1)


@onnx("Mish", since=18)
@dataclass(frozen=True)
class Mish(Pointwise):
    """x tanh(softplus(x))."""

    samples = ("f32[7]",)

    def scalar(self, x: Scalar) -> Scalar:
        """x tanh(softplus(x))."""
        return x * tanh(softplus(x))


@dataclass(frozen=True)
class Swish(Pointwise):
    """x sigmoid(alpha x)."""

    alpha: float = 1.0

    samples = ("f32[7]", sample("f16[2,3]", alpha=1.702))

    def scalar(self, x: Scalar) -> Scalar:
        """x sigmoid(alpha x)."""
        return x * sigmoid(x if self.alpha == 1.0 else x * self.alpha)


_SQRT_HALF = 0.7071067811865475244
_SQRT_TWO_OVER_PI = 0.7978845608028653559


@dataclass(frozen=True)
class Gelu(Pointwise):
    """x times the normal distribution function of x, exactly or by tanh."""

    tanh: bool = False

    samples = ("f32[7]", sample("f32[7]", tanh=True), "f16[2,3]")

    def scalar(self, x: Scalar) -> Scalar:
        """x/2 (1 + erf(x / sqrt 2)), or x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
        if self.tanh:
            inner = (x + x * x * x * 0.044715) * _SQRT_TWO_OVER_PI
            return x * 0.5 * (tanh(inner) + 1)
        return x * 0.5 * (erf(x * _SQRT_HALF) + 1)


@dataclass(frozen=True)
class Shrink(Pointwise):
    """x moved towards zero by bias outside [-limit, limit], else 0."""

    limit: float = 0.5
    bias: float = 0.0

    samples = (sample("f32[7]", limit=0.25, bias=0.125), "f32[7]")

    def scalar(self, x: Scalar) -> Scalar:
        """where(x < -limit, x + bias, where(x > limit, x - bias, 0))."""
        above = where(x > self.limit, x - self.bias, 0)
        return where(x < -self.limit, x + self.bias, above)


@onnx("PRelu", since=7)
@dataclass(frozen=True)
class PRelu(Pointwise):
    """x, scaled by the slope where negative."""

    samples = ("f32[2,3,4], f32[3,1]", "f16[5], f16[]")

    def scalar(self, x: Scalar, slope: Scalar) -> Scalar:
        """where(x < 0, slope x, x)."""
        return where(x < 0, slope * x, x)


@onnx("LeakyRelu", since=6)
def import_leaky_relu(call: OnnxCall) -> Node:
    """LeakyRelu with its slope."""
    return Node(LeakyRelu(call.attr("alpha", 0.01)), (call.arg(0),))


@onnx("Elu", since=6)
def import_elu(call: OnnxCall) -> Node:
    """Elu with its scale."""
    return Node(Elu(call.attr("alpha", 1.0)), (call.arg(0),))


@onnx("Celu", since=12)
def import_celu(call: OnnxCall) -> Node:
    """Celu with its scale."""
    return Node(Celu(call.attr("alpha", 1.0)), (call.arg(0),))


@onnx("Selu", since=6)
def import_selu(call: OnnxCall) -> Node:
    """Selu with its two scales."""
    op = Selu(call.attr("alpha", Selu.alpha), call.attr("gamma", Selu.gamma))
    return Node(op, (call.arg(0),))


@onnx("ThresholdedRelu", since=10)
def import_thresholded_relu(call: OnnxCall) -> Node:
    """ThresholdedRelu with its threshold."""
    return Node(ThresholdedRelu(call.attr("alpha", 1.0)), (call.arg(0),))


@onnx("HardSigmoid", since=6)
def import_hard_sigmoid(call: OnnxCall) -> Node:
    """HardSigmoid with its ramp."""
    op = HardSigmoid(call.attr("alpha", 0.2), call.attr("beta", 0.5))
    return Node(op, (call.arg(0),))


@onnx("Swish", since=24)
def import_swish(call: OnnxCall) -> Node:
    """Swish with its gain."""
    return Node(Swish(call.attr("alpha", 1.0)), (call.arg(0),))


@onnx("QuickGelu", domain="com.microsoft")
def import_quick_gelu(call: OnnxCall) -> Node:
    """QuickGelu: Swish with gain 1.702 unless stated."""
    return Node(Swish(call.attr("alpha", 1.702)), (call.arg(0),))


@onnx("Gelu", since=20)
def import_gelu(call: OnnxCall) -> Node:
    """Gelu; attribute approximate chooses the tanh form."""
    return Node(Gelu(call.attr("approximate", "none") == "tanh"), (call.arg(0),))


@onnx("Gelu", domain="com.microsoft")
def import_exact_gelu(call: OnnxCall) -> Node:
    """Gelu of onnxruntime's own domain: the erf form."""
    return Node(Gelu(), (call.arg(0),))


@onnx("Shrink", since=9)
def import_shrink(call: OnnxCall) -> Node:
    """Shrink with its limit and bias."""
    return Node(Shrink(call.attr("lambd", 0.5), call.attr("bias", 0.0)), (call.arg(0),))
