"""What one test of a converter is: an operator applied to inputs, and PyTorch's function of them.

Floating-point numbers, of constants too, are such that bfloat16 holds them exactly: what a half
precision makes of a case is then the layers' error alone, and what rounds or compares is decided
alike in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import torch
import tvm
from tvm import relax

from . import engines
from .harness import Error, Subject, arrays_of, compare, wide

Body = Callable[..., Any]
# What each symbol is in a first run and in a second one.
SIZES: dict[str, tuple[int, int]] = {"n": (1, 3), "m": (4, 5), "h": (8, 11), "w": (9, 6)}
RANGES = {name: (min(pair), pair[0], max(pair)) for name, pair in SIZES.items()}


def exact(array: np.ndarray) -> np.ndarray:
    """float32 that bfloat16 holds."""
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


@dataclass(frozen=True)
class Input:
    """Random numbers of a shape, or some that are given.

    Parameters
    ----------
    shape : tuple of int or str
        Strings are symbols.
    dtype : str
    low, high : float
        Integers are below `high`.
    values : tuple of float, optional
        Which are repeated over the shape instead.
    """

    shape: tuple[int | str, ...]
    dtype: str = "float32"
    low: float = -2
    high: float = 2
    values: tuple[float, ...] | None = None

    def array(self, rng: np.random.Generator, run: int = 0) -> np.ndarray:
        """With the symbols' sizes in the given run."""
        shape = tuple(SIZES[dim][run] if isinstance(dim, str) else dim for dim in self.shape)
        if self.values is not None:
            return np.resize(np.array(self.values, np.float32), shape).astype(self.numpy_dtype)
        if self.dtype == "bool":
            return np.asarray(rng.random(shape) > 0.5)
        if "float" not in self.dtype:
            return np.asarray(rng.integers(int(self.low), int(self.high), shape, self.dtype))
        return np.asarray(exact(rng.uniform(self.low, self.high, shape)).astype(self.numpy_dtype))

    @property
    def numpy_dtype(self) -> Any:
        """Also of bfloat16."""
        return getattr(ml_dtypes, self.dtype) if self.dtype == "bfloat16" else np.dtype(self.dtype)


def f(*shape: int | str, low: float = -2, high: float = 2, dtype: str = "float32") -> Input:
    """Floating point."""
    return Input(shape, dtype, low, high)


def i(*shape: int | str, low: int = -9, high: int = 9, dtype: str = "int32") -> Input:
    """Integers."""
    return Input(shape, dtype, low, high)


def b(*shape: int | str) -> Input:
    """Truth values."""
    return Input(shape, "bool")


def weights(*shape: int, seed: int = 5, low: float = -1, high: float = 1) -> np.ndarray:
    """A constant of a case, for the operator and for PyTorch; see `const` and `t`."""
    return exact(np.random.default_rng(seed).uniform(low, high, shape))


def const(array: Any, dtype: str | None = None) -> Any:
    """Of Relax, which would make long integers short."""
    array = np.asarray(array)
    name = dtype or array.dtype.name
    return relax.const(array.astype(getattr(ml_dtypes, name, name)), name)


def t(array: Any) -> torch.Tensor:
    """Of PyTorch."""
    return torch.from_numpy(np.array(array))


@dataclass(frozen=True)
class Case:
    """An operator on inputs.

    Parameters
    ----------
    body : callable
        Gets the module's variables.
    reference : callable
        Gets PyTorch's tensors, narrow ones as float32; what it gives is cast to what the operator
        gives.
    inputs : tuple of Input
    precisions : tuple of str
        In which the numbers are compared.
    """

    body: Body
    reference: Callable[..., Any]
    inputs: tuple[Input, ...]
    precisions: tuple[str, ...] = ("fp32", "fp16", "bf16")

    @cached_property
    def subject(self) -> Subject:
        """Partitioned, once."""
        return Subject.of_module(self.module())

    @property
    def composites(self) -> set[str]:
        """The patterns that matched, without the backend's name."""
        return {call.name.partition(".")[2] for call in self.subject.graph.calls}

    @property
    def symbols(self) -> set[str]:
        """Of the inputs."""
        return {dim for given in self.inputs for dim in given.shape if isinstance(dim, str)}

    def module(self) -> tvm.IRModule:
        """The operator alone."""
        builder = relax.BlockBuilder()
        symbols = {name: tvm.tirx.Var(name, "int64") for name in SIZES}
        variables = [
            relax.Var(
                f"x{number}",
                relax.TensorType([symbols.get(dim, dim) for dim in given.shape], given.dtype),
            )
            for number, given in enumerate(self.inputs)
        ]
        with builder.function("main", variables):
            with builder.dataflow():
                result = builder.emit(self.body(*variables))
                if isinstance(result.ty, tvm.ir.TupleType):
                    count = len(result.ty.fields)
                    parts = [builder.emit(relax.TupleGetItem(result, at)) for at in range(count)]
                    output = builder.emit_output(relax.Tuple(parts))
                else:
                    output = builder.emit_output(result)
            builder.emit_func_output(output)
        return builder.finalize()

    def check(self, precision: str = "fp32") -> Error:
        """Build the network and run it on inputs; twice, of other sizes, where it is dynamic."""
        network = self.subject.network(precision)
        dtypes = [binding.value.dtype for binding in network.outputs]
        worst = Error()
        for run in range(2 if self.symbols else 1):
            rng = np.random.default_rng(run)
            arrays = [given.array(rng, run) for given in self.inputs]
            expected = [
                array.astype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
                for array, dtype in zip(
                    arrays_of(self.reference(*map(wide, arrays))), dtypes, strict=True
                )
            ]
            found = self.subject.run(network, arrays)
            error = compare(found, expected, precision)
            worst = max(worst, error, key=lambda e: e.relative)
        return worst

    def engine(self, precision: str = "fp32") -> engines.Engine:
        """A real one of the network, compared with what Relax says of the shapes."""
        network = self.subject.network(precision)
        engine = engines.build(network, RANGES)
        engines.check(engine, network, RANGES)
        return engine


Group = Mapping[str, Case]
# By the pattern's name without the backend's, the operator in most cases.
Cases = dict[str, Group]
