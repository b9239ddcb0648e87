"""A program's inputs and outputs: their names, and what is no tensor among them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.torch.arrays import to_array, to_tensor
from tvm_byoc_kit.frontends.torch.exporting import quiet

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Interface:
    """What goes into a program and comes out of it.

    Parameters
    ----------
    arguments : tuple
        All arguments of ``forward``, flattened: the name of a tensor's input, or a
        ConstantArgument, whose value the program was exported for.
    outputs : tuple of str
        Names of the outputs: the keys of a dict, ``output`` for a single tensor, and else
        ``output_<i>``; nested ones are joined by underscores.
    positions : tuple of int
        Where the outputs stand among the flattened results, which may also have None.
    """

    arguments: tuple[str | ConstantArgument, ...]
    outputs: tuple[str, ...]
    positions: tuple[int, ...]

    @classmethod
    def of(cls, program: torch.export.ExportedProgram, origin: str) -> Interface:
        """The interface of `program`.

        Raises
        ------
        ModelError
            For an output that is a number: it would be lost.
        """
        signature = program.graph_signature
        arguments = tuple(
            spec.arg if isinstance(spec.arg, ConstantArgument) else spec.arg.name
            for spec in signature.input_specs
            if spec.kind is InputKind.USER_INPUT
        )
        results = [
            spec.arg for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT
        ]
        names = _output_names(program.call_spec.out_spec, len(results))
        for name, result in zip(names, results, strict=True):
            is_none = isinstance(result, ConstantArgument) and result.value is None
            if not isinstance(result, TensorArgument) and not is_none:
                raise ModelError(
                    f"output `{name}` of {origin} is no tensor but {result}; return tensors only, "
                    "for instance torch.tensor(value)"
                )
        positions = tuple(
            position
            for position, result in enumerate(results)
            if isinstance(result, TensorArgument)
        )
        if not positions:
            raise ModelError(f"{origin} returns no tensor")
        outputs = _distinct([names[position] for position in positions])
        return cls(arguments, outputs, positions)

    def keep_tensors_only(self, program: torch.export.ExportedProgram) -> None:
        """Take inputs and outputs that are no tensors, and state that is not read, out.

        The program's graph and signature are changed in place.
        """
        graph, signature = program.graph, program.graph_signature
        for spec in list(signature.input_specs):
            if isinstance(spec.arg, ConstantArgument):
                node = next(
                    n for n in graph.nodes if n.op == "placeholder" and n.name == spec.arg.name
                )
                node.replace_all_uses_with(spec.arg.value)
                graph.erase_node(node)
                signature.input_specs.remove(spec)
        output = graph.output_node()
        kept = [
            (spec, value)
            for spec, value in zip(signature.output_specs, output.args[0], strict=True)
            if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
        ]
        signature.output_specs[:] = [spec for spec, _ in kept]
        output.args = (tuple(value for _, value in kept),)
        program.graph_module.recompile()

    def runner(
        self, program: torch.export.ExportedProgram
    ) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
        """A function from arrays by name to arrays by name that runs `program` in PyTorch."""

        @functools.cache
        def module() -> Any:  # a copy of the model, so not before it is wanted
            with quiet():
                return program.module()

        return lambda values: _run(self, module(), program.call_spec.in_spec, values)


def _run(
    interface: Interface, module: Any, in_spec: Any, values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    names = [name for name in interface.arguments if isinstance(name, str)]
    missing = [name for name in names if name not in values]
    if missing:
        raise ModelError(f"the torch model has inputs that are not given: {', '.join(missing)}")
    flat = [
        to_tensor(values[item]) if isinstance(item, str) else item.value
        for item in interface.arguments
    ]
    args, kwargs = pytree.tree_unflatten(flat, in_spec)
    try:
        with torch.no_grad():
            results = pytree.tree_leaves(module(*args, **kwargs))
    except Exception as error:  # torch raises many unrelated types
        raise ModelError(
            f"PyTorch cannot run the model: {type(error).__name__}: {error}"
        ) from error
    return {
        name: to_array(results[position])
        for name, position in zip(interface.outputs, interface.positions, strict=True)
    }


def _output_names(spec: Any, count: int) -> list[str]:
    if spec is None or spec.is_leaf():
        return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    tree = pytree.tree_unflatten(list(range(count)), spec)
    paths, _ = pytree.tree_flatten_with_path(tree)
    if count == 1 and all(isinstance(key, pytree.SequenceKey) for key in paths[0][0]):
        return ["output"]
    return [_joined(path) for path, _ in paths]


def _joined(path: tuple[Any, ...]) -> str:
    """``('a', 0)`` as ``a_0``; a path that starts with a number gets ``output`` before it."""
    parts = [
        str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path
    ]
    return "_".join(parts if not parts[0].isdigit() else ["output", *parts])


def _distinct(names: list[str]) -> tuple[str, ...]:
    taken = set(names)
    seen: set[str] = set()
    result = []
    for name in names:
        fresh, number = name, 1
        while fresh in seen or (fresh != name and fresh in taken):
            fresh, number = f"{name}_{number}", number + 1
        seen.add(fresh)
        result.append(fresh)
    return tuple(result)
