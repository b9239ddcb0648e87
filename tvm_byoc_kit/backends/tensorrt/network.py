"""A region as a network of TensorRT's, strongly typed.

The precision is that of the types: where half is asked for, inputs and constants of float32 are
cast, and what would overflow or cancel out in half is computed in float32 between two casts. Inputs
and outputs keep the dtypes that the host gives and expects.

TensorRT looks at a layer only when the shape of its output is asked for, and says what is wrong
with it only to its logger; `NetworkBuilder.check` does the one and reads the other. Whatever an
operator's converter gives is compared with the shapes and dtypes that Relax derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes  # noqa: F401 - gives NumPy its bfloat16
import numpy as np

from tvm_byoc_kit import remedies
from tvm_byoc_kit.errors import BackendUnavailable, ModelError, reason
from tvm_byoc_kit.graph import Shape, Value
from tvm_byoc_kit.signature import folded

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.converters import Converter
    from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
    from tvm_byoc_kit.backends.tensorrt.vendor import Log, Vendor
    from tvm_byoc_kit.graph import Dim, Graph, Op
    from tvm_byoc_kit.graph import Operand as GraphOperand

__all__ = ["Binding", "Network", "NetworkBuilder", "Operand", "Tensor", "build_network"]

Tensor: TypeAlias = Any  # an ITensor of either vendor
Layer: TypeAlias = Any  # an ILayer
#: What a converter gets: constants are arrays until a layer needs a tensor.
Operand: TypeAlias = "Tensor | np.ndarray | Shape | tuple[Operand, ...] | int | float | str | None"

_TYPES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "bfloat16": "BF16",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
    "uint8": "UINT8",
}
# What float32 becomes; a dtype that the model itself has narrowed stays.
_NARROW = {"fp16": "float16", "bf16": "bfloat16"}
# The largest finite numbers.
_MOST = {"float16": (2 - 2**-10) * 2.0**15, "bfloat16": (2 - 2**-7) * 2.0**127}


@dataclass(frozen=True)
class Binding:
    """An input or output of the engine.

    Parameters
    ----------
    name : str
        In the engine.
    argument : int
        Its place among the arguments of the region's call: inputs, then outputs.
    value : Value
        What it is in the graph.
    """

    name: str
    argument: int
    value: Value


@dataclass(frozen=True)
class Network:
    """A finished network. TensorRT reads the weights while it builds: keep this until then.

    Parameters
    ----------
    builder : trt.Builder
    network : trt.INetworkDefinition
    inputs : tuple of Binding
        Those that are read, in the order of the arguments.
    outputs : tuple of Binding
    weights : tuple of numpy.ndarray
        What the network's constants point to.
    """

    builder: Any
    network: Any
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    weights: tuple[np.ndarray, ...]


def build_network(graph: Graph, vendor: Vendor, options: TensorRTOptions) -> Network:
    """The network that computes what `graph` does.

    Parameters
    ----------
    graph : Graph
    vendor : Vendor
    options : TensorRTOptions
        Of which the precision is used.

    Raises
    ------
    ModelError
        Naming the op, its shapes and what the vendor says against it.
    BackendUnavailable
        When the vendor makes no networks here: TensorRT wants a GPU for that.
    """
    with vendor.messages() as log:
        return NetworkBuilder(graph, vendor, options, log).build()


class NetworkBuilder:
    """A network in the making, and the helpers that converters share.

    Parameters
    ----------
    graph : Graph
    vendor : Vendor
    options : TensorRTOptions
    log : Log
        Where what the vendor says arrives.

    Attributes
    ----------
    trt : module
        ``tensorrt`` or ``tensorrt_rtx``.
    network : trt.INetworkDefinition
        Converters add layers to it and pass each one to `check`.
    """

    def __init__(self, graph: Graph, vendor: Vendor, options: TensorRTOptions, log: Log) -> None:
        self.trt = vendor.module
        self.graph = graph
        self.options = options
        self._vendor = vendor
        self._log = log
        self._builder = _make_builder(vendor, log)
        flag = getattr(self.trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        # TensorRT 11 has no other kind of network, and may have no flag for it.
        self.network = self._builder.create_network(0 if flag is None else 1 << int(flag))
        self._names = {getattr(self.trt.DataType, type_): name for name, type_ in _TYPES.items()}
        self._narrow = _NARROW.get(options.precision)
        self._where = f"region `{graph.name}`"
        self._layer_name = ""
        self._places = {value.name: number for number, value in enumerate(graph.inputs)}
        self._inputs: dict[int, Tensor] = {}
        self._values: dict[str, Tensor | np.ndarray] = {}
        self._cast_values: dict[tuple[str, str], Tensor | np.ndarray] = {}
        self._constants: dict[tuple[int, tuple[int, ...], str], Tensor] = {}
        self._weights: list[np.ndarray] = []
        self._symbols: dict[str, Tensor] = {}

    def build(self) -> Network:
        """The whole network."""
        from tvm_byoc_kit.backends.tensorrt.converters import CONVERTERS

        for op in self.graph.ops:
            self._where = f"region `{self.graph.name}`, {_described(op)}"
            self._layer_name = f"{op.name.removeprefix('relax.')} {op.results[0].name}"
            if op.name not in CONVERTERS:
                raise ModelError(
                    f"{self._where}: the TensorRT backend has no such operator; partition the "
                    "module again"
                )
            self._convert(op, CONVERTERS[op.name])
        outputs = tuple(self._output(n, value) for n, value in enumerate(self.graph.outputs))
        inputs = tuple(
            Binding(self._inputs[number].name, number, self.graph.inputs[number])
            for number in sorted(self._inputs)
        )
        return Network(self._builder, self.network, inputs, outputs, tuple(self._weights))

    # --- Inputs, outputs and ops ---

    def _input(self, number: int) -> Tensor:
        if number not in self._inputs:
            value = self.graph.inputs[number]
            dims = [dim if isinstance(dim, int) else -1 for dim in value.shape]
            tensor = self.network.add_input(f"input_{number}", self.dtype(value.dtype), dims)
            if tensor is None:
                raise self._error(f"{self._vendor.name} refuses the input {value}")
            self._inputs[number] = tensor
        return self._inputs[number]

    def _output(self, number: int, value: Value) -> Binding:
        self._where = f"region `{self.graph.name}`, output {value}"
        self._layer_name = f"output {number}"
        dtype = self.dtype(value.dtype)
        # An output of its own, also where the value is an input or another output as well.
        tensor = self.tensor(self._value(value))
        if tensor.dtype == dtype:
            tensor = self.check(self.network.add_identity(tensor))
        else:
            tensor = self.cast(tensor, dtype)
        tensor.name = f"output_{number}"
        self.network.mark_output(tensor)
        return Binding(tensor.name, len(self.graph.inputs) + number, value)

    def _convert(self, op: Op, converter: Converter) -> None:
        operands = [self._operand(operand, converter) for operand in op.operands]
        try:
            made = converter.convert(self, op, *operands)
        except RuntimeError as error:
            raise self._error(f"{self._vendor.name} refuses it") from error
        results = made if isinstance(made, tuple) else (made,)
        if len(results) != len(op.results):
            raise self._error(
                f"its converter gave {len(results)} results, expected {len(op.results)}"
            )
        for value, result in zip(op.results, results, strict=True):
            self._values[value.name] = self._verified(value, result, converter)

    def _verified(
        self, value: Value, result: Tensor | np.ndarray, converter: Converter
    ) -> Tensor | np.ndarray:
        """`result`, which surely has the shape and dtype of `value`.

        What was computed in float32, and is so in the model, is narrowed for those only that read
        it narrow: a logarithm of a sum of exponentials has no half between them.
        """
        wanted = self._working(value.dtype)
        dims = tuple(result.shape)
        found = self._names[self._type(result)]
        if found == "float32" and wanted in converter.widened:
            result, found = self.cast(result, self.dtype(value.dtype)), wanted
        expected = tuple(dim if isinstance(dim, int) else -1 for dim in value.shape)
        same = len(dims) == len(expected) and all(
            a == b or (a == -1 and b != -1) for a, b in zip(dims, expected, strict=True)
        )
        if found != wanted or not same:
            raise self._error(
                f"its converter gave {found}{list(dims)}, expected {wanted}"
                f"[{', '.join(map(str, value.shape))}]; this is a fault of the backend"
            )
        return result

    def _operand(self, operand: GraphOperand, converter: Converter) -> Operand:
        if isinstance(operand, tuple):
            return tuple(self._operand(member, converter) for member in operand)
        if not isinstance(operand, Value):
            return operand
        if operand.dims is not None:
            return Shape(operand.dims)
        dtype = self._working(operand.dtype)
        return self._value(operand, "float32" if dtype in converter.widened else dtype)

    def _value(self, value: Value, dtype: str | None = None) -> Tensor | np.ndarray:
        """The tensor, or array, of a value: with its own dtype, or as `dtype`."""
        known: Tensor | np.ndarray
        if value.data is not None:
            known = value.data
        elif value.name in self._places:
            known = self._input(self._places[value.name])
        else:
            known = self._values[value.name]
        if dtype is None:
            return known
        key = value.name, dtype
        if key not in self._cast_values:
            self._cast_values[key] = self.cast(known, self.dtype(dtype))
        return self._cast_values[key]

    def _working(self, dtype: str) -> str:
        """What a tensor of `dtype` in the graph has between two layers."""
        return self._narrow if self._narrow and dtype == "float32" else dtype

    def _error(self, what: str) -> ModelError:
        said = self._log.errors
        return ModelError(f"{self._where}: {what}{': ' if said else ''}{said}")

    # --- Layers ---

    def check(self, layer: Layer, output: int = 0) -> Tensor:
        """An output of `layer`, which TensorRT has looked at.

        Raises
        ------
        ModelError
            With what TensorRT says against it.
        """
        if layer is None:
            raise self._error(f"{self._vendor.name} refuses it")
        if output == 0:
            layer.name = f"{self._layer_name} #{self.network.num_layers - 1}"
        tensor = layer.get_output(output)
        try:
            tuple(tensor.shape)
        except (RuntimeError, ValueError):
            kind = str(layer.type).rpartition(".")[2].lower()
            raise self._error(f"{self._vendor.name} refuses the layer `{kind}`") from None
        return tensor

    def dtype(self, name: str) -> Any:
        """TensorRT's type for a dtype, just as it is named; see `result_dtype`."""
        if name not in _TYPES:
            raise self._error(f"TensorRT has no {name}, but {', '.join(_TYPES)}")
        return getattr(self.trt.DataType, _TYPES[name])

    def result_dtype(self, op: Op, result: int = 0) -> Any:
        """TensorRT's type for a result of `op`, in the precision of the network."""
        return self.dtype(self._working(op.results[result].dtype))

    def widened(self, op: Op, *operands: Tensor | np.ndarray) -> tuple[Tensor | np.ndarray, ...]:
        """Operands of an `op` whose result may be wider than they are, as wide as it."""
        wide = self.dtype("float32")
        if any(self._type(x) == wide for x in operands):
            return operands
        return tuple(self.cast(x, self.result_dtype(op)) for x in operands)

    def is_float(self, x: Tensor | np.ndarray) -> bool:
        """Whether the elements are numbers of floating point."""
        return "float" in self._names[self._type(x)]

    def _type(self, x: Tensor | np.ndarray) -> Any:
        return self.dtype(x.dtype.name) if isinstance(x, np.ndarray) else x.dtype

    def weights(self, array: np.ndarray) -> Any:
        """What TensorRT reads from the memory of `array`, which is kept for it."""
        array = np.require(array, requirements="C")
        self._weights.append(array)
        if array.dtype.name == "bfloat16":
            return self.trt.Weights(self.trt.DataType.BF16, array.ctypes.data, array.size)
        return self.trt.Weights(array)

    def tensor(
        self, x: Tensor | np.ndarray, rank: int | None = None, like: Tensor | None = None
    ) -> Tensor:
        """A tensor from an operand.

        Parameters
        ----------
        x : tensor or array
            An array becomes a constant of the network, once.
        rank : int, optional
            At least so many dimensions, ones in front.
        like : tensor, optional
            Which the dtype is taken from; None: `x` keeps its own.
        """
        if like is not None:
            x = self.cast(x, like.dtype)
        missing = 0 if rank is None else max(0, rank - len(x.shape))
        if isinstance(x, np.ndarray):
            return self._constant(x.reshape((1,) * missing + x.shape))
        return self.unsqueeze(x, range(missing)) if missing else x

    def _constant(self, array: np.ndarray) -> Tensor:
        array = np.require(array, requirements="C")
        key = array.ctypes.data, array.shape, array.dtype.name
        if key not in self._constants:
            layer = self.network.add_constant(array.shape, self.weights(array))
            self._constants[key] = self.check(layer)
        return self._constants[key]

    def scalar(self, number: float, like: Tensor) -> Tensor:
        """`number` with the dtype and the rank of `like`, for elementwise layers."""
        value = np.full((1,) * len(like.shape), number)
        return self.tensor(_narrowed(value, self._names[like.dtype]))

    def cast(self, x: Tensor | np.ndarray, dtype: Any) -> Tensor | np.ndarray:
        """`x` as TensorRT's type `dtype`; an array stays one."""
        if isinstance(x, np.ndarray):
            return _narrowed(x, self._names[dtype])
        return x if x.dtype == dtype else self.check(self.network.add_cast(x, dtype))

    def broadcast(self, *operands: Tensor | np.ndarray) -> tuple[Tensor, ...]:
        """Operands as tensors of one rank, which is all that TensorRT broadcasts for."""
        rank = max(len(x.shape) for x in operands)
        return tuple(self.tensor(x, rank) for x in operands)

    def elementwise(self, kind: str, a: Tensor | np.ndarray, b: Tensor | np.ndarray) -> Tensor:
        """One layer of ``trt.ElementWiseOperation``; operands are broadcast."""
        operation = getattr(self.trt.ElementWiseOperation, kind)
        return self.check(self.network.add_elementwise(*self.broadcast(a, b), operation))

    def unary(self, kind: str, x: Tensor) -> Tensor:
        """One layer of ``trt.UnaryOperation``."""
        operation = getattr(self.trt.UnaryOperation, kind)
        return self.check(self.network.add_unary(self.tensor(x), operation))

    def activation(
        self, kind: str, x: Tensor, alpha: float | None = None, beta: float | None = None
    ) -> Tensor:
        """One layer of ``trt.ActivationType``."""
        operation = getattr(self.trt.ActivationType, kind)
        layer = self.network.add_activation(self.tensor(x), operation)
        if layer is not None and alpha is not None:
            layer.alpha = alpha
        if layer is not None and beta is not None:
            layer.beta = beta
        return self.check(layer)

    def reduce(self, kind: str, x: Tensor, axes: Sequence[int], *, keep: bool) -> Tensor:
        """One layer of ``trt.ReduceOperation`` over `axes`; `keep` them with size 1."""
        operation = getattr(self.trt.ReduceOperation, kind)
        mask = self.axes(x, axes)
        return self.check(self.network.add_reduce(self.tensor(x), operation, mask, keep))

    def axes(self, x: Tensor, axes: Sequence[int]) -> int:
        """TensorRT's bit mask of `axes`, which may be negative."""
        return sum({1 << (axis % len(x.shape)) for axis in axes})

    # --- Shapes ---

    def reshape(self, x: Tensor, dims: Sequence[Dim]) -> Tensor:
        """`x` with other dimensions; symbolic ones are computed from the network's inputs."""
        layer = self.network.add_shuffle(self.tensor(x))
        symbolic = [dim for dim in dims if not isinstance(dim, int)]
        layer.zero_is_placeholder = False
        if len(symbolic) > 1:
            layer.set_input(1, self.shape_vector(dims))
        else:
            layer.reshape_dims = [dim if isinstance(dim, int) else -1 for dim in dims]
        return self.check(layer)

    def transpose(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """`x` with its dimensions in another order."""
        layer = self.network.add_shuffle(self.tensor(x))
        layer.first_transpose = tuple(order)
        return self.check(layer)

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """`x` with dimensions of 1 at `axes` of the result; whatever the others are.

        The ones are put behind, where 0 means that a dimension is kept, and moved.
        """
        kept, added = len(x.shape), len(axes)
        behind = iter(range(kept, kept + added))
        before = iter(range(kept))
        layer = self.network.add_shuffle(self.tensor(x))
        layer.reshape_dims = (0,) * kept + (1,) * added
        layer.second_transpose = tuple(
            next(behind) if axis in axes else next(before) for axis in range(kept + added)
        )
        return self.check(layer)

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """`x` without `axes`, which are of size 1; whatever the others are."""
        kept = [axis for axis in range(len(x.shape)) if axis not in axes]
        layer = self.network.add_shuffle(self.tensor(x))
        layer.first_transpose = (*kept, *axes)
        layer.reshape_dims = (0,) * len(kept)
        return self.check(layer)

    def shape_vector(self, dims: Sequence[Dim]) -> Tensor:
        """Sizes as a tensor of ``int64[rank]``, which layers take as a shape."""
        if all(isinstance(dim, int) for dim in dims):
            return self.tensor(np.array(dims, "int64"))
        layer = self.network.add_concatenation([self._size(dim) for dim in dims])
        return self.check(layer)

    def _size(self, dim: Dim) -> Tensor:
        """A dimension as a tensor of ``int64[1]``."""
        if isinstance(dim, int):
            return self.tensor(np.array([dim], "int64"))
        if dim in self.graph.symbols:  # first: it may be called like a keyword of Python
            return self._symbol(dim)
        return folded(dim, self._leaf, self._combined)

    def _leaf(self, leaf: int | str) -> Tensor:
        return self._size(leaf) if isinstance(leaf, int) else self._symbol(leaf)

    def _combined(self, operation: str, a: Tensor, b: Tensor) -> Tensor:
        if operation == "Mod":
            whole = self.elementwise("PROD", self.elementwise("FLOOR_DIV", a, b), b)
            return self.elementwise("SUB", a, whole)
        return self.elementwise(_OPERATIONS[operation], a, b)

    def _symbol(self, name: str) -> Tensor:
        if name not in self._symbols:
            number, axis = self._source(name)
            shape = self.check(self.network.add_shape(self._input(number)))
            self._symbols[name] = self.check(self.network.add_slice(shape, (axis,), (1,), (1,)))
        return self._symbols[name]

    def _source(self, name: str) -> tuple[int, int]:
        """A tensor among the inputs, and its axis, of which `name` is the size."""
        for number, value in enumerate(self.graph.inputs):
            if value.dims is None and name in value.shape:
                return number, value.shape.index(name)
        raise self._error(
            f"the size `{name}` is that of no tensor which the region is given; TensorRT takes "
            "sizes from tensors"
        )


# Of trt.ElementWiseOperation.
_OPERATIONS = {
    "Add": "SUM",
    "Sub": "SUB",
    "Mult": "PROD",
    "FloorDiv": "FLOOR_DIV",
    "max": "MAX",
    "min": "MIN",
}


def _make_builder(vendor: Vendor, log: Log) -> Any:
    try:
        return vendor.module.Builder(vendor.logger)
    except (RuntimeError, TypeError) as error:  # of pybind11, for a factory that gives none
        raise BackendUnavailable(
            "tensorrt",
            "codegen",
            f"{vendor} makes no builder: {log.errors or reason(error)}",
            "run it where there is a GPU and its driver, or without one use "
            + remedies.kit_extra("tensorrt-rtx"),
        ) from error


def _narrowed(array: np.ndarray, name: str) -> np.ndarray:
    """`array` with another dtype, in which what is finite stays so.

    The masks of transformers have numbers such as -1e9 and the smallest of float32. As an infinity
    one of these would give no number where it is multiplied by 0.
    """
    with np.errstate(over="ignore"):
        narrow = array.astype(np.dtype(name), copy=False)
    if narrow.dtype != array.dtype and name in _MOST:
        lost = np.isinf(narrow) & np.isfinite(array)
        if lost.any():
            narrow[lost] = np.copysign(_MOST[name], array[lost])
    return narrow


def _described(op: Op) -> str:
    """An op with what it is applied to, for messages."""
    tensors = [
        part
        for operand in op.operands
        for part in (operand if isinstance(operand, tuple) else (operand,))
        if isinstance(part, Value)
    ]
    return f"{op.name} of {', '.join(map(str, tensors))}"
