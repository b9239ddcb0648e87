"""What a finished ``INetworkDefinition`` computes, by PyTorch on the CPU: no engine and no GPU.

Everything is read back through the vendor's API, layer by layer, so that a wrong, swapped or
forgotten attribute is a wrong number here. Nothing is taken from the kit's own graph.
Floating-point layers compute in float32 and round to the dtype that the layer's output has.

A layer type that no function below is for is an error, and so are an attribute of the vendor's
class that its function does not read, an input too many, and a shape or dtype other than the one
that the vendor gives.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

Tensor = torch.Tensor
Compute = Callable[..., Any]

# By the names of nvinfer1::DataType.
_DTYPES: dict[str, torch.dtype] = {
    "FLOAT": torch.float32,
    "HALF": torch.float16,
    "BF16": torch.bfloat16,
    "INT8": torch.int8,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "BOOL": torch.bool,
    "UINT8": torch.uint8,
}
# Attributes that say once more what others say.
_ALIASES = frozenset({"padding_nd"})
# The only layers that may turn integers into floating point, or the other way round.
_CONVERSIONS = frozenset({"CAST", "QUANTIZE", "DEQUANTIZE", "IDENTITY"})


class OracleError(AssertionError):
    """The network holds what this interpreter does not know, or contradicts itself."""


@dataclass(frozen=True)
class Kind:
    """A layer type.

    Parameters
    ----------
    cls : str
        The vendor's class.
    reads : frozenset of str
        The attributes that `compute` looks at.
    compute : function
        Of a `Layer` and its input tensors, None for an optional one that is not set.
    """

    cls: str
    reads: frozenset[str]
    compute: Compute


KINDS: dict[str, Kind] = {}


def layer(kind: str, cls: str, reads: str = "") -> Callable[[Compute], Compute]:
    """Put a function into the table, for one name of ``LayerType``."""

    def register(compute: Compute) -> Compute:
        KINDS[kind] = Kind(cls, frozenset(reads.split()), compute)
        return compute

    return register


class Layer:
    """One layer, through which a function reads the attributes that it is registered with."""

    def __init__(self, trt: Any, raw: Any) -> None:
        # Before the class is set: of an activation and a pool, `type` then is the operation.
        self.kind: str = trt.ILayer.type.fget(raw).name
        if self.kind not in KINDS:
            raise OracleError(f"{raw.name}: no function for the layer type {self.kind}")
        self._reads = KINDS[self.kind].reads
        cls = getattr(trt, KINDS[self.kind].cls)
        unread = attributes(trt, cls) - self._reads
        if unread:
            raise OracleError(f"{raw.name}: attributes that nobody reads: {sorted(unread)}")
        raw.__class__ = cls  # the API gives the base class
        self.raw = raw
        self.name: str = raw.name

    def __getattr__(self, name: str) -> Any:
        if name not in self._reads:
            raise OracleError(f"{self.name}: {self.kind} is not registered to read {name}")
        try:
            return getattr(self.raw, name)
        except RuntimeError:  # how the bindings say that it is not set
            return None

    def expect(self, **values: str) -> None:
        """Refuse a network that uses another mode than those that are implemented."""
        for attribute, value in values.items():
            found = getattr(self, attribute).name
            if found != value:
                raise OracleError(f"{self.name}: {attribute} is {found}, expected {value}")

    def stored(self, attribute: str) -> Tensor | None:
        """Flat, or None where there are none."""
        value = getattr(self, attribute)
        return None if value is None or not value.size else read_weights(value)

    @property
    def inputs(self) -> list[Any]:
        """The vendor's tensors; None for optional ones that are not set."""
        return [self.raw.get_input(i) for i in range(self.raw.num_inputs)]

    @property
    def outputs(self) -> list[Any]:
        """The vendor's tensors."""
        return [self.raw.get_output(i) for i in range(self.raw.num_outputs)]


def attributes(trt: Any, cls: Any) -> set[str]:
    """What `cls` has beyond every layer's attributes, and ``type`` where it is redefined."""
    own = {name for name in set(dir(cls)) - set(dir(trt.ILayer)) if not name.startswith("_")}
    return own - _ALIASES | ({"type"} & set(vars(cls)))


def read_weights(value: Any) -> Tensor:
    """Weights as the API gives them, flat: an array or, of bfloat16, an opaque object."""
    if isinstance(value, np.ndarray):
        return to_torch(value)
    if value.dtype.name != "BF16":
        raise OracleError(f"weights of {value.dtype.name}")
    # A pybind11 object holds the address of its nvinfer1::Weights behind Python's own two words:
    # {int32 type; const void* values; int64 count}.
    address = ctypes.c_void_p.from_address(id(value) + 16).value
    kind = ctypes.c_int32.from_address(address).value
    values = ctypes.c_void_p.from_address(address + 8).value
    count = ctypes.c_int64.from_address(address + 16).value
    if (kind, count) != (int(value.dtype), value.size):
        raise OracleError("weights of bfloat16 are laid out otherwise in this vendor's bindings")
    raw = (ctypes.c_int16 * count).from_address(values)
    return torch.from_numpy(np.array(raw, np.int16)).view(torch.bfloat16)


def to_torch(array: np.ndarray) -> Tensor:
    """A copy, bfloat16 included."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def to_numpy(tensor: Tensor) -> np.ndarray:
    """The other way round."""
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.contiguous().numpy()


def torch_dtype(dtype: Any) -> torch.dtype:
    """Of one of the vendor's."""
    if dtype.name not in _DTYPES:
        raise OracleError(f"dtype {dtype.name}")
    return _DTYPES[dtype.name]


def interpret(trt: Any, network: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of `network` by name.

    Parameters
    ----------
    trt : module
        The vendor's.
    network : INetworkDefinition
    feeds : mapping of str to numpy.ndarray
        For every input, in its dtype.
    """
    values = _fed(network, feeds)
    pending = deque(network.get_layer(i) for i in range(network.num_layers))
    waited = 0  # layers come in any order
    while pending:
        raw = pending.popleft()
        tensors = [raw.get_input(i) for i in range(raw.num_inputs)]
        if any(tensor is not None and tensor.name not in values for tensor in tensors):
            pending.append(raw)
            waited += 1
            if waited > len(pending):
                raise OracleError(f"{raw.name} reads what no layer computes")
            continue
        waited = 0
        given = [None if tensor is None else _wide(values[tensor.name]) for tensor in tensors]
        _compute(Layer(trt, raw), given, values)
    outputs = [network.get_output(i) for i in range(network.num_outputs)]
    return {output.name: to_numpy(values[output.name]) for output in outputs}


def _fed(network: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    inputs = {tensor.name: tensor for tensor in map(network.get_input, range(network.num_inputs))}
    if set(inputs) != set(feeds):
        raise OracleError(f"inputs are {sorted(inputs)}, given {sorted(feeds)}")
    values = {name: to_torch(np.asarray(array)) for name, array in feeds.items()}
    for name, tensor in inputs.items():
        _check(tensor, values[name])
    return values


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _compute(this: Layer, given: Sequence[Tensor | None], values: dict[str, Tensor]) -> None:
    found = KINDS[this.kind].compute(this, *given)
    parts = found if isinstance(found, tuple) else (found,)
    for output, part in zip(this.outputs, parts, strict=True):
        dtype = torch_dtype(output.dtype)
        converts = part.is_floating_point() != dtype.is_floating_point
        if converts and this.kind not in _CONVERSIONS:
            raise OracleError(f"{this.name}: {part.dtype} becomes {dtype} in a {this.kind}")
        values[output.name] = part.to(dtype)
        _check(output, values[output.name])


def _check(tensor: Any, value: Tensor) -> None:
    declared, dtype = tuple(tensor.shape), torch_dtype(tensor.dtype)
    fits = len(declared) == value.dim() and all(
        size in (-1, found) for size, found in zip(declared, value.shape, strict=True)
    )
    if not fits or dtype != value.dtype:
        raise OracleError(
            f"{tensor.name}: TensorRT says {dtype}{list(declared)}, "
            f"found {value.dtype}{list(value.shape)}"
        )


def axes_of(mask: int) -> list[int]:
    """The axes that a bit mask of the API names."""
    return [axis for axis in range(mask.bit_length()) if mask >> axis & 1]


def same_rank(this: Layer, *tensors: Tensor) -> None:
    """What the API requires of operands that are broadcast."""
    if len({tensor.dim() for tensor in tensors}) != 1:
        raise OracleError(f"{this.name}: operands of {[list(t.shape) for t in tensors]}")
