"""The example NPU: upstream's teaching backend, with a codegen and a runtime that computes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.example_npu_predicates import refusal
from tvm_byoc_kit.backends.operands import size, static
from tvm_byoc_kit.errors import OptionError

if TYPE_CHECKING:
    from tvm.relax.dpl import DFPattern
    from tvm.relax.transform import FusionPattern, PatternCheckContext

__all__ = ["BACKEND", "ExampleNPUOptions", "refusal"]

PREFIX = "example_npu."


@dataclass(frozen=True)
class ExampleNPUOptions:
    """Options of the example NPU's codegen, carried in the region's graph.

    Parameters
    ----------
    mode : {"simulate", "record"}
        ``simulate`` computes and records what the NPU would decide; ``record`` only records, as
        upstream's teaching runtime does, and leaves the outputs uninitialised.
    power_mode : {"high_performance", "balanced", "low_power"}
        Scales the clock of the cost model.
    l0_bytes, l1_bytes, l2_bytes : int
        Sizes of the register file, the SRAM and the CMX in bytes.
    frequency_mhz : int
        Cycles per microsecond in ``high_performance``.
    matrix_macs_per_cycle, conv_macs_per_cycle : int
        32-bit multiply-accumulates per cycle of the two engines.
    array_columns : int
        Output channels that the arrays work on at once.
    float16_mac_speedup, int8_mac_speedup : int
        MACs per unit and cycle for narrower operands.
    vector_ops_per_cycle, pooling_ops_per_cycle, activation_ops_per_cycle : int
        Element operations per cycle of the other engines.
    l0_bytes_per_cycle, l1_bytes_per_cycle, l2_bytes_per_cycle : int
        Bandwidth of each tier, bytes per cycle.
    l3_mbytes_per_second : int
        Bandwidth of DRAM, which has its own clock, in megabytes per second.
    l0_access_cycles, l1_access_cycles, l2_access_cycles, l3_access_cycles : int
        Cycles for each transfer of a tile; 0 is allowed.

    Notes
    -----
    Numbers go up to 2147483647, so that no product of them leaves 64 bits.

    The cost model and the reason of each default: ``docs/example_npu_cost_model.md``.
    """

    mode: str = "simulate"
    power_mode: str = "balanced"
    l0_bytes: int = 4 * 1024
    l1_bytes: int = 256 * 1024
    l2_bytes: int = 512 * 1024
    frequency_mhz: int = 1000
    matrix_macs_per_cycle: int = 256
    conv_macs_per_cycle: int = 256
    array_columns: int = 16
    float16_mac_speedup: int = 2
    int8_mac_speedup: int = 4
    vector_ops_per_cycle: int = 64
    pooling_ops_per_cycle: int = 64
    activation_ops_per_cycle: int = 64
    l0_bytes_per_cycle: int = 1024
    l1_bytes_per_cycle: int = 256
    l2_bytes_per_cycle: int = 64
    l3_mbytes_per_second: int = 16000
    l0_access_cycles: int = 0
    l1_access_cycles: int = 1
    l2_access_cycles: int = 4
    l3_access_cycles: int = 100

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise OptionError(
                    f"example_npu option {name}={value!r}: expected one of {', '.join(allowed)}"
                )
        for item in fields(self):
            value, least = getattr(self, item.name), int(not item.name.endswith("_access_cycles"))
            if item.name in _CHOICES:
                continue
            if type(value) is not int or not least <= value <= _MOST:
                raise OptionError(
                    f"example_npu option {item.name}={value!r}: "
                    f"expected an integer >= {least} and <= {_MOST}"
                )


_MOST = 2**31 - 1
_CHOICES = {
    "mode": ("simulate", "record"),
    "power_mode": ("high_performance", "balanced", "low_power"),
}

# Ops that upstream's table has no pattern for, by number of operands that the pattern names.
_PLAIN = {
    "sigmoid": ("relax.sigmoid", 1),
    "tanh": ("relax.tanh", 1),
    "silu": ("relax.nn.silu", 1),
    "gelu_tanh": ("relax.nn.gelu_tanh", 1),
    "leakyrelu": ("relax.nn.leakyrelu", 1),
    "log_softmax": ("relax.nn.log_softmax", 1),
    "exp": ("relax.exp", 1),
    "sqrt": ("relax.sqrt", 1),
    "negative": ("relax.negative", 1),
    "clip": ("relax.clip", 3),
    "maximum": ("relax.maximum", 2),
    "minimum": ("relax.minimum", 2),
    "reshape": ("relax.reshape", 2),
    "flatten": ("relax.flatten", 1),
    "squeeze": ("relax.squeeze", 1),
    "expand_dims": ("relax.expand_dims", 1),
    "permute_dims": ("relax.permute_dims", 1),
    "concat": ("relax.concat", 1),
    "mean": ("relax.mean", 1),
    "layer_norm": ("relax.nn.layer_norm", 3),
    # Upstream's patterns for these name one operand of the three, and so match nothing.
    "quantize_affine": ("relax.quantize", 3),
    "dequantize_affine": ("relax.dequantize", 3),
}
_MAC = {"conv1d": "relax.nn.conv1d", "conv2d": "relax.nn.conv2d", "matmul": "relax.matmul"}
_ACTIVATIONS = {
    "relu": ("relax.nn.relu", 1),
    "clip": ("relax.clip", 3),
    "gelu": ("relax.nn.gelu", 1),
    "sigmoid": ("relax.sigmoid", 1),
    "silu": ("relax.nn.silu", 1),
}

_UPSTREAM_FUSES = {"conv2d": frozenset({"relu"}), "matmul": frozenset({"relu"})}


def _is_bias(context: PatternCheckContext) -> bool:
    """Whether the addend is one value per output channel, not another feature map."""
    mac, bias = context.annotated_expr["mac"], context.annotated_expr["bias"]
    layout = getattr(mac.attrs, "out_layout", None) or "C"  # matmul: the last axis
    axis = layout.index("C") - len(layout)
    if len(mac.ty.shape) < -axis:  # the product of two vectors
        return False
    channels = static(mac.ty.shape[axis])
    if channels is None or bias.ty.shape is None:
        return False
    return size(bias.ty.shape) in (1, channels)


def _extensions() -> list[tuple[object, ...]]:
    """The kit's patterns, lowest priority first as `register_patterns` wants them."""
    from tvm.relax.dpl import is_op, wildcard

    def activated(x: DFPattern, activation: str) -> DFPattern:
        op, operands = _ACTIVATIONS[activation]
        return is_op(op)(x, *(wildcard() for _ in range(operands - 1)))

    table: list[tuple[object, ...]] = [
        (PREFIX + name, is_op(op)(*(wildcard() for _ in range(operands))))
        for name, (op, operands) in _PLAIN.items()
    ]
    table.append(
        (PREFIX + "add_relu", is_op("relax.nn.relu")(is_op("relax.add")(wildcard(), wildcard())))
    )
    for name, op in _MAC.items():
        for activation in _ACTIVATIONS:
            if activation in _UPSTREAM_FUSES.get(name, ()):
                continue
            root = activated(is_op(op)(wildcard(), wildcard()), activation)
            table.append((f"{PREFIX}{name}_{activation}", root))
    for activation in ("", *_ACTIVATIONS):
        for name, op in _MAC.items():
            mac, bias = is_op(op)(wildcard(), wildcard()), wildcard()
            biased = is_op("relax.add")(mac, bias) | is_op("relax.add")(bias, mac)
            root = activated(biased, activation) if activation else biased
            suffix = f"_{activation}" if activation else ""
            table.append(
                (f"{PREFIX}{name}_bias{suffix}", root, {"mac": mac, "bias": bias}, _is_bias)
            )
    return table


@functools.cache
def _register() -> None:
    import tvm.relax.backend.contrib.example_npu  # noqa: F401 - registers upstream's
    from tvm.relax.backend.pattern_registry import get_pattern, register_patterns

    # Names that upstream's table has already, such as a relu6 of a later release, stay upstream's.
    register_patterns([entry for entry in _extensions() if get_pattern(entry[0]) is None])


def patterns() -> list[FusionPattern]:
    """Upstream's table and the kit's additions, fused before plain."""
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    _register()
    return list(get_patterns_with_prefix(PREFIX))


BACKEND = Backend(
    name="example_npu",
    summary="the example NPU: C++ codegen and a simulator that computes",
    patterns=patterns,
    refusal=refusal,
    requires={
        "partition": ("tvm",),
        "codegen": ("plugin:example_npu", "codegen:example_npu"),
        "runtime": ("runtime:runtime.ExampleNPUJSONRuntimeCreate",),
        "device": ("device:example_npu",),
    },
    options=ExampleNPUOptions,
    loaders=("example_npu_json",),
)
