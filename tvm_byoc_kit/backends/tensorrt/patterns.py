"""The ops that TensorRT takes: upstream's pattern table, and the kit's additions.

Every addition is one operator, called ``tensorrt.<operator>`` as upstream calls its own, and is
what one layer of TensorRT's ``INetworkDefinition`` computes, or a few layers together: ``rsqrt`` is
a square root and a reciprocal, ``group_norm`` a reshape, two means and arithmetic. `prepare` takes
no operator apart for TensorRT: a converter that sees it whole can use the better layer.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.tensorrt.quantization import quantization_patterns

if TYPE_CHECKING:
    from tvm.relax.transform import FusionPattern

__all__ = ["EXTENSIONS", "tensorrt_patterns"]

_PREFIX = "tensorrt."
_UPSTREAM = "tvm.relax.backend.contrib.tensorrt"

# By number of operands. Behind each group: the layer, or layers, of TensorRT.
_OPERATORS: dict[int, str] = {
    1: (
        # IActivationLayer
        "nn.gelu nn.gelu_tanh nn.leakyrelu nn.selu nn.softplus "
        # IUnaryLayer; rsqrt and isfinite take several, square is x * x
        "round sign rsqrt square tan sinh cosh asin acos asinh acosh atanh "
        "isnan isinf isfinite logical_not bitwise_not "
        # ICastLayer, ICumulativeLayer
        "astype cumsum "
        # IShuffleLayer and IConcatenationLayer
        "flatten stack nn.pixel_shuffle "
        # ISliceLayer, in its modes FILL, CLAMP, REFLECT and WRAP, or in steps of -1; repeat gathers
        "nn.pad tile repeat flip "
        # IPoolingLayer and IReduceLayer
        "nn.max_pool1d nn.avg_pool1d nn.adaptive_avg_pool1d nn.adaptive_avg_pool3d "
        "variance std nn.log_softmax"
    ),
    2: (
        # IElementWiseLayer; less_equal is LESS or EQUAL
        "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor "
        "bitwise_and bitwise_or bitwise_xor "
        # IGatherLayer in its three modes; ISliceLayer with steps of 0
        "take gather_elements gather_nd broadcast_to "
        # IParametricReLULayer, IDeconvolutionLayer; means and arithmetic
        "nn.prelu nn.conv1d_transpose nn.rms_norm"
    ),
    # ISelectLayer; reductions and arithmetic; two matrix products around a softmax
    3: "where nn.group_norm nn.instance_norm nn.attention",
    4: "nn.attention_bias",
    5: "nn.batch_norm",  # IScaleLayer
}

#: Operators that the kit adds, without ``relax.``, and how many operands each has.
EXTENSIONS: dict[str, int] = {
    name: operands for operands, names in _OPERATORS.items() for name in names.split()
}


@functools.cache
def _additions() -> tuple[FusionPattern, ...]:
    """The kit's patterns.

    They stay out of TVM's registry: upstream's ``partition_for_tensorrt`` takes whatever is there
    under its prefix, and upstream's runtime has no converters for these.
    """
    from tvm.relax.dpl import is_op, wildcard
    from tvm.relax.transform import FusionPattern

    return tuple(
        FusionPattern(_PREFIX + name, is_op(f"relax.{name}")(*(wildcard() for _ in range(count))))
        for name, count in EXTENSIONS.items()
    )


def tensorrt_patterns() -> list[FusionPattern]:
    """Upstream's table, and what it has no pattern for, whatever its release.

    Quantized weights come first: a convolution is matched with them before it is alone.
    """
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    importlib.import_module(_UPSTREAM)
    upstream = list(get_patterns_with_prefix(_PREFIX))
    names = {pattern.name for pattern in upstream}
    additions = [pattern for pattern in _additions() if pattern.name not in names]
    return [*quantization_patterns(_PREFIX), *upstream, *additions]
