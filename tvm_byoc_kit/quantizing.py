"""Where a model is quantized, and the quantize and dequantize ops that do it.

What is quantized: the operands of convolutions and matrix products, and not of transposed
convolutions, which TensorRT-RTX computes in floating point all the same. Constants, the weights, to
signed bytes with a scale for each output channel; what is computed, with one scale for the whole
tensor. And where a convolution's result is added to something, that too, so that the sum is part of
the convolution (NVIDIA, "Working with Quantized Types", Q/DQ layer-placement recommendations). All
scales are symmetric: the zero point is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.rewriting import array_of, constant_of, op_name, rewrite_calls, same_shape

if TYPE_CHECKING:
    from tvm import IRModule

    from tvm_byoc_kit.rewriting import Scope

__all__ = ["LARGEST", "Plan", "Site", "insert_quantization", "plan_quantization", "weight_scales"]

#: The largest magnitude of a signed byte that has its negative.
LARGEST = 127
#: Scales below it are no normal numbers, which hardware may take for zero.
LEAST_SCALE = float(np.finfo(np.float32).tiny)

_CONVOLUTIONS = frozenset(f"relax.nn.conv{dims}d" for dims in (1, 2, 3))
_PRODUCT = "relax.matmul"
_DTYPES = ("float32", "float16")  # that relax.quantize takes
_MATRIX = 2  # dimensions


@dataclass(frozen=True)
class Site:
    """An operand that is quantized.

    Parameters
    ----------
    name : str
        Such as ``conv2d_0.data``: of a tensor that several ops read, the first of them.
    call : relax.Call
    operand : int
        Which of the call's arguments.
    tensor : relax.Var or constant
    axis : int, optional
        Of the weights: that of the output channels, or None for one scale.
    """

    name: str
    call: Any
    operand: int
    tensor: Any
    axis: int | None = None


@dataclass(frozen=True)
class Plan:
    """What is to be quantized in a function.

    Parameters
    ----------
    activations : tuple of Site
        Computed operands. Those of one tensor have the same name, and one scale.
    weights : tuple of Site
        Constant operands.
    ops : mapping of name to operator
        What is computed in 8 bits, in the order of execution: ``conv2d_0: relax.nn.conv2d``.
    """

    activations: tuple[Site, ...]
    weights: tuple[Site, ...]
    ops: Mapping[str, str]

    @property
    def tensors(self) -> dict[str, Any]:
        """The tensors whose ranges are needed, by name."""
        return {site.name: site.tensor for site in self.activations}


def plan_quantization(function: Any, exclude: Collection[str] = ()) -> Plan:
    """What is to be quantized in a Relax function without dataflow blocks.

    Parameters
    ----------
    function : relax.Function
        Ops inside an ``If`` are left alone, and so are ops with an operand that is dequantized.
    exclude : collection of str
        Operators (``relax.matmul``), or ops by their names (``conv2d_0``), that stay as they are.

    Raises
    ------
    OptionError
        When `exclude` names what is not there.
    """
    return _Planner(function, frozenset(exclude)).plan()


@dataclass
class _Planner:
    function: Any
    exclude: frozenset[str]
    names: dict[Any, str] = field(default_factory=dict)  # of the tensors
    activations: list[Site] = field(default_factory=list)
    weights: list[Site] = field(default_factory=list)
    ops: dict[str, str] = field(default_factory=dict)

    def plan(self) -> Plan:
        bindings = [item for block in self.function.body.blocks for item in block.bindings]
        self._values = {binding.var: binding.value for binding in bindings}
        self._order = {binding.var: place for place, binding in enumerate(bindings)}
        known: dict[str, str] = {}
        convolved: set[Any] = set()
        for var, call, name in _numbered(self._values):
            known[name] = op_name(call)
            if not {name, op_name(call)} & self.exclude and self._quantize(call, name):
                self.ops[name] = op_name(call)
                if op_name(call) in _CONVOLUTIONS:
                    convolved.add(var)
        self._check_excluded(known)
        for number, call in enumerate(self._sums()):
            self._quantize_addend(call, f"add_{number}", convolved)
        return Plan(tuple(self.activations), tuple(self.weights), self.ops)

    def _check_excluded(self, known: Mapping[str, str]) -> None:
        for name in sorted(self.exclude - {*known, *known.values()}):
            raise OptionError(
                f"exclude names '{name}', which is nothing that would be quantized; there are: "
                f"{', '.join(known) or 'none'}, and the operators "
                f"{', '.join(dict.fromkeys(known.values())) or 'none'}"
            )

    def _quantize(self, call: Any, name: str) -> bool:
        """Note the operands of `call`; False when it cannot be computed in 8 bits."""
        if not all(map(_is_quantizable, call.args)) or all(map(_is_constant, call.args)):
            return False
        if any(op_name(self._values.get(operand)) == "relax.dequantize" for operand in call.args):
            return False
        self._note(call, 0, f"{name}.data")
        self._note(call, 1, f"{name}.weights", _output_axis(call))
        return True

    def _note(self, call: Any, operand: int, name: str, axis: int | None = None) -> None:
        tensor = call.args[operand]
        if _is_constant(tensor):
            self.weights.append(Site(name, call, operand, tensor, axis))
        else:
            name = self.names.setdefault(tensor, name)
            self.activations.append(Site(name, call, operand, tensor))

    def _sums(self) -> Iterator[Any]:
        """Sums of two computed tensors of one shape."""
        for call in self._values.values():
            computed = op_name(call) == "relax.add" and all(x in self._order for x in call.args)
            if computed and same_shape(*call.args):
                yield call

    def _quantize_addend(self, call: Any, name: str, convolved: set[Any]) -> None:
        """Of a convolution's sum with something: what the convolution is not, or what is older."""
        found = [self._source(operand) in convolved for operand in call.args]
        if not any(found) or not all(map(_is_quantizable, call.args)):
            return
        older = int(self._order[call.args[1]] < self._order[call.args[0]])
        self._note(call, older if all(found) else found.index(False), f"{name}.addend")

    def _source(self, tensor: Any) -> Any:
        """The variable behind the sums with constants, the biases, that end in `tensor`."""
        while op_name(self._values.get(tensor)) == "relax.add":
            computed = [x for x in self._values[tensor].args if not _is_constant(x)]
            if len(computed) != 1:
                break
            tensor = computed[0]
        return tensor


def _numbered(values: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, str]]:
    """The convolutions and products, with their variables and names."""
    numbers: Counter[str] = Counter()
    for var, value in values.items():
        name = op_name(value)
        if name in _CONVOLUTIONS or name == _PRODUCT:
            short = name.rpartition(".")[2]
            yield var, value, f"{short}_{numbers[short]}"
            numbers[short] += 1


def _is_constant(tensor: Any) -> bool:
    return array_of(tensor) is not None


def _is_quantizable(tensor: Any) -> bool:
    """Whether it is of floating point, of a known rank, and more than a vector."""
    ty = tensor.ty
    return (
        getattr(ty, "dtype", None) is not None and str(ty.dtype) in _DTYPES and ty.ndim >= _MATRIX
    )


def _output_axis(call: Any) -> int | None:
    """The axis of the second operand that the result's channels, or columns, are on."""
    if op_name(call) in _CONVOLUTIONS:
        return str(call.attrs.kernel_layout).index("O")
    ndim = int(call.args[1].ty.ndim)
    return 1 if ndim == _MATRIX else None


def weight_scales(weights: np.ndarray, axis: int | None) -> np.ndarray:
    """``max(|weights|) / 127``, float32: one for each place on `axis`, or a scalar.

    Where all weights are zero, or as good as zero, the scale is 1.
    """
    others = None if axis is None else tuple(a for a in range(weights.ndim) if a != axis)
    largest = np.abs(weights.astype(np.float32)).max(others)
    scales = largest / np.float32(LARGEST)
    return np.asarray(np.where(scales < LEAST_SCALE, 1, scales), np.float32)


def insert_quantization(mod: IRModule, plan: Plan, scales: Mapping[str, float]) -> IRModule:
    """`mod`, whose function was planned for, with quantize and dequantize ops.

    Parameters
    ----------
    mod : tvm.IRModule
    plan : Plan
    scales : mapping of str to float
        By the names of the plan's tensors.
    """
    sites: dict[Any, list[Site]] = {}
    for site in (*plan.activations, *plan.weights):
        sites.setdefault(site.call, []).append(site)
    made: dict[str, Any] = {}

    def rule(call: Any, original: Any, scope: Scope) -> Any:
        from tvm import relax

        if original not in sites:
            return None
        operands = list(call.args)
        for site in sites[original]:
            if _is_constant(site.tensor):
                operands[site.operand] = scope.emit(_stored(site))
            else:
                if site.name not in made:
                    value = operands[site.operand]
                    made[site.name] = _rounded(scope, value, scales[site.name])
                operands[site.operand] = made[site.name]
        return relax.Call(call.op, operands, call.attrs, call.ty_args)

    ops = dict.fromkeys((*_CONVOLUTIONS, _PRODUCT, "relax.add"), rule)
    return rewrite_calls(mod, ops)


def _stored(site: Site) -> Any:
    """The weights as bytes, and the op that makes floats of them."""
    from tvm.relax.op import dequantize

    weights = array_of(site.tensor)
    assert weights is not None  # noqa: S101 - what makes it a site of the weights
    scales = weight_scales(weights, site.axis)
    shape = [1] * weights.ndim
    if site.axis is not None:
        shape[site.axis] = -1
    bytes_ = np.rint(weights.astype(np.float32) / scales.reshape(shape)).astype(np.int8)
    return dequantize(
        constant_of(bytes_),
        constant_of(scales),
        constant_of(np.zeros(scales.shape, np.int8)),
        -1 if site.axis is None else site.axis,
        str(site.tensor.ty.dtype),
    )


def _rounded(scope: Scope, tensor: Any, scale: float) -> Any:
    """`tensor` after it was a byte."""
    from tvm.relax.op import dequantize, quantize

    step, zero = constant_of(np.array(scale, np.float32)), constant_of(np.array(0, np.int8))
    quantized = scope.emit(quantize(tensor, step, zero, -1, "int8"))
    return scope.emit(dequantize(quantized, step, zero, -1, str(tensor.ty.dtype)))
