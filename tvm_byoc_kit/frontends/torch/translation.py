"""TVM's importer with the kit's converters, each node's result checked against PyTorch's type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_byoc_kit.errors import ModelError, reason
from tvm_byoc_kit.frontends.torch.converters import CONVERTERS
from tvm_byoc_kit.frontends.torch.screening import place

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx
    from tvm import IRModule


def translate(program: torch.export.ExportedProgram, origin: str, *, unwrap: bool) -> IRModule:
    """`program`, decomposed and screened, as Relax with its parameters as constants.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    origin : str
        For messages.
    unwrap : bool
        Whether a single result is given as a tensor instead of a tuple of one.

    Raises
    ------
    ModelError
        When a node cannot be converted, or comes out with another shape or dtype than in PyTorch.
    """
    try:
        return CheckedImporter(origin, _infinite_constants(program)).from_exported_program(
            program,
            keep_params_as_input=False,
            unwrap_unit_return_tuple=unwrap,
            no_bind_return_tuple=False,
            custom_convert_map=None,
        )
    except ModelError:
        raise
    except Exception as error:  # the importer raises whatever its parts do
        raise ModelError(
            f"TVM cannot import {origin}: {type(error).__name__}: {reason(error)}"
        ) from error


class CheckedImporter(ExportedProgramImporter):  # type: ignore[misc]
    """An importer that believes no converter."""

    def __init__(self, origin: str, infinite: frozenset[str]) -> None:
        self.origin = origin
        self.infinite = infinite
        super().__init__()

    def create_convert_map(self) -> dict[str, Callable[[fx.Node], Any]]:
        """TVM's converters and the kit's, which come first, each with its result checked."""
        own = {
            name: lambda node, convert=convert: self._emitted(convert(self, node))
            for name, convert in CONVERTERS.items()
        }
        return {
            name: self._checked(convert)
            for name, convert in {**super().create_convert_map(), **own}.items()
        }

    def _emitted(self, value: Any) -> Any:
        return value if isinstance(value, relax.Var) else self.block_builder.emit(value)

    def _checked(self, convert: Callable[[fx.Node], Any]) -> Callable[[fx.Node], Any]:
        def converted(node: fx.Node) -> Any:
            try:
                result = convert(node)
            except ModelError:
                raise
            except Exception as error:  # converters raise whatever TVM does
                raise self._refusal(node, f"{type(error).__name__}: {reason(error)}") from error
            return self._as_in_torch(node, result)

        return converted

    def _as_in_torch(self, node: fx.Node, result: Any) -> Any:
        """`result`, rounded to PyTorch's dtype where it was computed in a wider one."""
        expected = node.meta.get("val")
        if not isinstance(expected, torch.Tensor) or not isinstance(result, relax.Expr):
            return result
        result = self.block_builder.normalize(result)
        if not isinstance(result.ty, relax.TensorType):
            raise self._refusal(node, f"TVM gives {result.ty}, PyTorch a tensor")
        self._check_shape(node, result, expected)
        dtype, wanted = str(result.ty.dtype.dtype), self._convert_data_type(expected.dtype)
        if dtype == wanted:
            return result
        if _WIDER.get(wanted) != dtype:
            raise self._refusal(node, f"TVM computes it in {dtype}, PyTorch in {wanted}")
        return self.block_builder.emit(relax.op.astype(result, wanted))

    def _check_shape(self, node: fx.Node, result: Any, expected: torch.Tensor) -> None:
        shape = result.ty.shape
        found = None if shape is None else [getattr(dim, "value", None) for dim in shape]
        wanted = [size if isinstance(size, int) else None for size in expected.shape]
        if found is not None and len(found) == len(wanted):
            pairs = zip(found, wanted, strict=True)
            if all(None in pair or pair[0] == pair[1] for pair in pairs):
                return
        raise self._refusal(node, f"TVM gives the shape {shape}, PyTorch {list(expected.shape)}")

    def _refusal(self, node: fx.Node, reason: str) -> ModelError:
        operands = ", ".join(_described(argument) for argument in node.all_input_nodes)
        name = getattr(node.target, "__name__", str(node.target))
        return ModelError(
            f"TVM cannot import {self.origin}: aten.{name} of {operands or 'no tensor'} "
            f"({place(node)}): {reason}"
        )


def _infinite_constants(program: torch.export.ExportedProgram) -> frozenset[str]:
    """Names of the parameters, buffers and constants that have an infinite element."""
    values = {**program.state_dict, **program.constants}
    return frozenset(
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if isinstance(value := values.get(spec.target), torch.Tensor)
        and value.is_floating_point()
        and bool(torch.isinf(value).any())
    )


# From PyTorch's dtype to the one that the kit computes it in.
_WIDER = {"float16": "float32", "bfloat16": "float32"}


def _described(node: fx.Node) -> str:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return str(node.name)
