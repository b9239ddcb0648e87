"""Calls of an artifact with several builds: which one runs, padded or in parts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.dispatch import Dispatcher
from tvm_byoc_kit.errors import ModelError, reason
from tvm_byoc_kit.input_checks import checked_inputs, symbol_sizes
from tvm_byoc_kit.staging import Staging, flatten_outputs, is_shared
from tvm_byoc_kit.transfers import transfers
from tvm_byoc_kit.variants import OpenDimension, Variant, Variants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tvm_byoc_kit.artifact import Manifest
    from tvm_byoc_kit.dispatch import Plan
    from tvm_byoc_kit.signature import TensorSpec
    from tvm_byoc_kit.transfers import Transfer

__all__ = ["Lane", "VariantCalls"]

_CACHED = 256  # combinations of input shapes


class Lane:
    """What one thread runs steps with.

    Parameters
    ----------
    vm : tvm.relax.VirtualMachine
    device : tvm.runtime.Device or None
        Where its tensors are, when that is not CPU memory.
    outputs : sequence of TensorSpec
    """

    def __init__(self, vm: Any, device: Any, outputs: Sequence[TensorSpec]) -> None:
        import numpy as np

        self._from_dlpack = np.from_dlpack
        self._vm = vm
        self._device = device
        self._outputs = [(spec.name, device is None and is_shared(spec.dtype)) for spec in outputs]
        self._functions: dict[str, Any] = {}
        self._stagings: dict[str, Staging] = {}

    def run(self, steps: Sequence[Transfer], arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a call with the inputs `arrays`."""
        results: dict[str, np.ndarray] = {}
        for step in steps:
            staging = self._staging(step)
            for take, memory, array in zip(step.takes, staging.arrays, arrays, strict=True):
                take.fill(memory, array)
            flat = self._call(step.entry, staging.tensors())
            for (name, shared), give, value in zip(self._outputs, step.gives, flat, strict=True):
                give.collect(results, name, self._from_dlpack(value) if shared else value.numpy())
        return results

    def _staging(self, step: Transfer) -> Staging:
        """That of the last call of the same build, when it was of the same shapes."""
        kept = self._stagings.get(step.entry)
        if kept is None or kept.specs != step.inputs:
            kept = self._stagings[step.entry] = Staging(step.inputs, self._device)
        return kept

    def _call(self, entry: str, tensors: Sequence[Any]) -> list[Any]:
        function = self._functions.get(entry)
        try:
            if function is None:
                function = self._functions[entry] = self._vm[entry]
            return flatten_outputs(function(*tensors))
        except Exception as error:  # whatever TVM and the regions' runtimes raise
            raise ModelError(f"the model failed while it ran: {reason(error)}") from error


class VariantCalls:
    """Which steps make up a call; one for all threads.

    Parameters
    ----------
    manifest : Manifest
    """

    def __init__(self, manifest: Manifest) -> None:
        import numpy as np

        self.inputs, self.outputs = manifest.inputs, manifest.outputs
        self.variants = manifest.variants or _one_build(manifest)
        self._dispatcher = Dispatcher(self.variants, manifest.inputs)
        self._array_type = np.ndarray
        self._kinds = [
            (spec.name, np.dtype(spec.dtype) if is_shared(spec.dtype) else None, len(spec.shape))
            for spec in manifest.inputs
        ]
        self._cached = lru_cache(_CACHED)(self._steps)

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """As of the dispatcher."""
        return self._dispatcher.plan(sizes)

    def run(self, lane: Lane, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs for `inputs`; errors as of `Executable.run`."""
        arrays = self._plain(inputs)
        if arrays is None:
            arrays = checked_inputs(self.inputs, inputs)
        return lane.run(self._cached(tuple([array.shape for array in arrays])), arrays)

    def steps_of(self, plan: Plan, sizes: Mapping[str, int]) -> tuple[Transfer, ...]:
        """The steps of `plan`, in a call with all symbols of the inputs at `sizes`."""
        return transfers(plan, self.variants.dimensions, self.inputs, self.outputs, sizes)

    def _plain(self, inputs: Mapping[str, Any]) -> list[np.ndarray] | None:
        """`inputs` in order when they plainly have the names, dtypes and ranks, quickly."""
        if type(inputs) is not dict or len(inputs) != len(self._kinds):
            return None
        arrays = []
        for name, dtype, rank in self._kinds:
            array = inputs.get(name)
            if type(array) is not self._array_type or array.dtype != dtype or array.ndim != rank:
                return None
            arrays.append(array)
        return arrays

    def _steps(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Transfer, ...]:
        sizes = symbol_sizes(self.inputs, shapes)
        named = {name: sizes[name] for name in self.variants.dimensions}
        return self.steps_of(self.plan(named), sizes)


def _one_build(manifest: Manifest) -> Variants:
    """An artifact with nothing to choose takes every size of its open dimensions."""
    dims = (dim for spec in manifest.inputs for dim in spec.shape)
    symbols = [dim for dim in dims if isinstance(dim, str) and dim.isidentifier()]
    return Variants((Variant(manifest.entry),), dict.fromkeys(symbols, OpenDimension()))
