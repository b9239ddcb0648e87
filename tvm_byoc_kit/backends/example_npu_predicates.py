"""What the example NPU cannot run, as reasons.

There is no limit of size among them: a tile that does not fit the SRAM even at its smallest moves
to the next tier, and at last to DRAM, so that every size can be cut into tiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.operands import computed_tuple, named_tensors
from tvm_byoc_kit.predicates import first_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.relax import Call

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["PREDICATES", "refusal"]

# What the runtime computes: floating point, and 8 bits with 32-bit accumulators where it has them.
_FLOAT = frozenset({"float16", "float32"})
_BYTE = frozenset({"int8", "uint8"})
_SUM = _FLOAT | {"int32"}
_ANY = _FLOAT | _BYTE | {"int32"}
_DTYPES = {
    "relax.nn.conv1d": _ANY,
    "relax.nn.conv2d": _ANY,
    "relax.matmul": _ANY,
    "relax.add": _SUM,
    "relax.subtract": _SUM,
    "relax.multiply": _SUM,
    "relax.maximum": _SUM,
    "relax.minimum": _SUM,
    "relax.quantize": _ANY,
    "relax.dequantize": _ANY,
    "relax.nn.relu": _ANY,
    "relax.clip": _ANY,
    "relax.nn.max_pool2d": _FLOAT | _BYTE,
    "relax.nn.avg_pool2d": _FLOAT | _BYTE,
    "relax.reshape": _ANY,
    "relax.flatten": _ANY,
    "relax.squeeze": _ANY,
    "relax.expand_dims": _ANY,
    "relax.permute_dims": _ANY,
    "relax.concat": _ANY,
}
# The engines that multiply and sum read no 32-bit integers.
_OPERANDS = dict.fromkeys(("relax.nn.conv1d", "relax.nn.conv2d", "relax.matmul"), _FLOAT | _BYTE)
_LAYOUTS = {
    "data_layout": ("NCHW", "NHWC", "NCW", "NWC"),
    "kernel_layout": ("OIHW", "HWIO", "OHWI", "OIW", "WIO", "OWI"),
    "layout": ("NCHW", "NHWC"),
}
_WINDOW = ("pool_size", "strides", "padding", "dilation")
_WIDEST = 2**24  # the runtime's bound, so that no product of a size and one of these overflows


def _numbers(call: Call) -> list[int]:
    """Positions of the operands that are single numbers."""
    from tvm.ir import PrimType

    return [i for i, arg in enumerate(call.args) if isinstance(arg.ty, PrimType)]


def _number(call: Call) -> str | None:
    for i in _numbers(call):
        return f"operand {i} is a number, not a tensor"
    return None


def _bound(call: Call) -> str | None:
    for i in _numbers(call):
        if not hasattr(call.args[i], "value"):
            return f"operand {i} is known only when the model runs"
    return None


def _shape(call: Call) -> str | None:
    for name, ty in named_tensors(call):
        if ty.ndim < 0 or ty.shape is None:
            return f"the shape of {name} is unknown"
    return None


def _dtype(call: Call) -> str | None:
    for name, ty in named_tensors(call):
        table = _DTYPES if name == "result" else {**_DTYPES, **_OPERANDS}
        allowed = table.get(call.op.name, _FLOAT)
        dtype = str(ty.dtype)
        if dtype not in allowed:
            return f"{name} is {dtype}; the NPU has {', '.join(sorted(allowed))}"
    return None


def _quantized(call: Call) -> str | None:
    if str(call.args[0].ty.dtype) in _FLOAT:
        return "operand 0 is floating point; the NPU has int32, int8, uint8"
    return None


def _accumulator(call: Call) -> str | None:
    """The types are right one by one; now those of all together."""
    *operands, result = [str(ty.dtype) for _, ty in named_tensors(call)]
    if _FLOAT.issuperset([*operands, result]):
        return None
    if _BYTE.issuperset(operands) and result in ("int8", "int32"):
        return None
    return (
        f"{' and '.join(operands)} to {result}; the NPU has float16 and float32, "
        "or int8 and uint8 to int8 or int32"
    )


def _layout(call: Call) -> str | None:
    for attr, allowed in _LAYOUTS.items():
        layout = getattr(call.attrs, attr, None)
        if layout is not None and layout not in allowed:
            return f"{attr} is {layout}; the NPU has {', '.join(allowed)}"
    return None


def _window(call: Call) -> str | None:
    for attr in _WINDOW:
        values = [int(value) for value in getattr(call.attrs, attr, None) or ()]
        if max(values, default=0) > _WIDEST:
            listed = ", ".join(map(str, values))
            return f"{attr} is {listed}; the NPU counts to {_WIDEST}"
    return None


_COMMON: tuple[Predicate, ...] = (computed_tuple, _number, _shape, _dtype)
_SLIDING: tuple[Predicate, ...] = (_layout, _window)

#: What is asked of the calls of each op, in this order; of others, what is common to all.
PREDICATES: Mapping[str, tuple[Predicate, ...]] = {
    "relax.nn.conv1d": (*_COMMON, _accumulator, *_SLIDING),
    "relax.nn.conv2d": (*_COMMON, _accumulator, *_SLIDING),
    "relax.matmul": (*_COMMON, _accumulator),
    "relax.nn.max_pool2d": (*_COMMON, *_SLIDING),
    "relax.nn.avg_pool2d": (*_COMMON, *_SLIDING),
    "relax.clip": (computed_tuple, _bound, _shape, _dtype),
    "relax.dequantize": (*_COMMON, _quantized),
}


def refusal(call: Call) -> str | None:
    """Why the example NPU cannot run `call`, or None when it can."""
    return first_reason(PREDICATES.get(call.op.name, _COMMON), call)
