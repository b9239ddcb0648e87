"""Which dtypes each operator may have in TensorRT.

From NVIDIA's operator reference (docs.nvidia.com/deeplearning/tensorrt, "Operators Documentation"),
and from what the builder of TensorRT-RTX 1.7 takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.operands import named_tensors

if TYPE_CHECKING:
    from tvm.relax import Call

__all__ = ["mixed_dtypes", "operand_dtypes", "refused_dtype"]

_FLOAT = ("float32", "float16", "bfloat16")
_INTEGER = ("int32", "int64")
_NUMBER = _FLOAT + _INTEGER
_BOOL = ("bool",)
_ANY = _NUMBER + _BOOL


@dataclass(frozen=True)
class _Dtypes:
    """Of one operator.

    Parameters
    ----------
    operands : tuple of str
        What its operands may be; all of the same.
    result : tuple of str, optional
        What it may give; None: what it reads.
    other : mapping of operand to dtypes
        Operands that are not data, such as indices.
    widens : bool
        Whether the result may be float32 where the operands are narrower: the converter casts them.
    """

    operands: tuple[str, ...] = _FLOAT
    result: tuple[str, ...] | None = None
    other: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    widens: bool = False


_DEFAULT = _Dtypes()


def _by_name(*groups: tuple[_Dtypes, str]) -> dict[str, _Dtypes]:
    return {f"relax.{name}": dtypes for dtypes, names in groups for name in names.split()}


_INDICES = {"operand 1": _INTEGER}
_QUANTIZED = ("float32", "float16")
# A zero point that is 0 may be of any dtype: it goes nowhere.
_PARAMETERS = {"operand 1": _QUANTIZED, "operand 2": ("int8", "uint8", "int16", "int32", "float16")}
_DTYPES = _by_name(
    (
        _Dtypes(_NUMBER),
        (
            "add subtract multiply maximum minimum nn.relu abs negative sign square clip "
            "sum prod max min"
        ),
    ),
    (
        _Dtypes(_ANY),
        (
            "reshape flatten nn.batch_flatten expand_dims squeeze permute_dims layout_transform "
            "concat stack split strided_slice broadcast_to tile repeat flip nn.pad nn.pixel_shuffle"
        ),
    ),
    (_Dtypes(_ANY, other=_INDICES), "take gather_elements gather_nd"),
    (_Dtypes(_ANY, other={"operand 0": _BOOL}), "where"),
    (_Dtypes(_ANY, _BOOL), "equal not_equal"),
    (_Dtypes(_NUMBER, _BOOL), "less less_equal greater greater_equal"),
    (_Dtypes(_FLOAT, _BOOL), "isnan isinf isfinite"),
    (
        _Dtypes(_BOOL),
        (
            "logical_and logical_or logical_xor logical_not "
            "bitwise_and bitwise_or bitwise_xor bitwise_not"
        ),
    ),
    # Only inputs of a network may be uint8; nothing but a cast reads them.
    (_Dtypes((*_ANY, "uint8"), _ANY), "astype"),
    (_Dtypes(_ANY, _NUMBER), "cumsum"),
    (
        _Dtypes(widens=True),
        (
            "matmul nn.conv1d nn.conv2d nn.conv3d "
            "nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose"
        ),
    ),
    (_Dtypes(("float32", "float16")), "image.resize2d"),
    (_Dtypes(_QUANTIZED, ("int8",), other=_PARAMETERS), "quantize"),
    (_Dtypes(("int8",), _QUANTIZED, other=_PARAMETERS), "dequantize"),
)


def operand_dtypes(name: str) -> tuple[str, ...]:
    """What the data of an operator, such as ``relax.add``, may be."""
    return _DTYPES.get(name, _DEFAULT).operands


def refused_dtype(call: Call) -> str | None:
    """A dtype that the operator has not in TensorRT."""
    dtypes = _DTYPES.get(call.op.name, _DEFAULT)
    for name, ty in named_tensors(call):
        allowed = dtypes.other.get(name, dtypes.operands)
        if name == "result" and dtypes.result is not None:
            allowed = dtypes.result
        if str(ty.dtype) not in allowed:
            return f"{name} is {ty.dtype}; TensorRT has {', '.join(allowed)}"
    return None


def mixed_dtypes(call: Call) -> str | None:
    """Operands, or a result, of different dtypes where TensorRT has one for all."""
    dtypes = _DTYPES.get(call.op.name, _DEFAULT)
    named = [(name, str(ty.dtype)) for name, ty in named_tensors(call) if name not in dtypes.other]
    result = next(dtype for name, dtype in named if name == "result")
    found = {dtype for name, dtype in named if name != "result"}
    if dtypes.result is None and not (dtypes.widens and result == "float32"):
        found |= {dtype for name, dtype in named if name == "result"}
    if len(found) > 1:
        return f"{' and '.join(sorted(found))} together; TensorRT has one for all"
    return None
