"""A region in pieces: any run of its composites as a region of its own.

A region calls one composite after the other. A *window* is what stands between two of these calls:
a region too, which reads what the rest computes, and gives what the rest reads of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tvm import IRModule

__all__ = ["Leaf", "RegionPieces", "Window", "module_of"]

# A tensor or shape of a region: its variable, and which item of a tuple; None for no tuple.
Leaf = tuple[Any, "int | None"]


@dataclass(frozen=True)
class Window:
    """Some of a region's calls, one after the other, as a region.

    Parameters
    ----------
    function : relax.Function
        With the attribute ``Codegen``.
    reads : tuple of Leaf
        What its parameters are in the whole region; after these comes a parameter for `sizes`,
        unless that is empty.
    writes : tuple of Leaf
        What its results are there.
    sizes : tuple of symbolic variables
        Of the whole region, which are not found in what it reads.
    """

    function: Any
    reads: tuple[Leaf, ...]
    writes: tuple[Leaf, ...]
    sizes: tuple[Any, ...]


class RegionPieces:
    """The calls of a region.

    Parameters
    ----------
    region : relax.Function

    Attributes
    ----------
    calls : list of (variable, relax.Call)
        In the order of execution.
    params : tuple of Leaf
    results : tuple of Leaf
        Of all calls.
    outputs : tuple of Leaf
        Of the region.
    """

    def __init__(self, region: Any) -> None:
        from tvm import relax

        self._region = region
        self._functions: dict[Any, Any] = {}
        self._aliases: dict[Any, Any] = {}  # variables of what is no call
        self.calls: list[tuple[Any, Any]] = []
        for block in region.body.blocks:
            for binding in block.bindings:
                if isinstance(binding.value, relax.Call):
                    self.calls.append((binding.var, binding.value))
                elif isinstance(binding.value, relax.Function):
                    self._functions[binding.var] = binding.value
                else:
                    self._aliases[binding.var] = binding.value
        self.params = tuple(leaf for param in region.params for leaf in _leaves(param))
        self.results = tuple(leaf for var, _ in self.calls for leaf in _leaves(var))
        self.outputs = tuple(self._read(region.body.body))

    def callee(self, at: int) -> Any:
        """The composite that call `at` calls; the call itself where it calls none."""
        call = self.calls[at][1]
        return self._functions.get(call.op, call)

    def composite(self, at: int) -> str:
        """The pattern's name of call `at`."""
        attrs = getattr(self.callee(at), "attrs", None)
        return (
            str(attrs["Composite"]) if attrs and "Composite" in attrs else str(self.calls[at][1].op)
        )

    def window(self, start: int, stop: int) -> Window:
        """The calls from `start` to before `stop`."""
        return _WindowMaker(self, start, stop).window()

    def whole(self) -> Any:
        """The region as a function for the host, which gives `results`."""
        leaves = [_item(var, index) for var, index in self.results]
        return _function(self._region.params, list(self._region.body.blocks), leaves)

    def sizes(self, values: Mapping[Leaf, Any]) -> dict[Any, int]:
        """The sizes of symbolic variables where the region's parameters have these `values`."""
        found: dict[Any, int] = {}
        for var, index in self.params:
            ty = var.ty if index is None else var.ty.fields[index]
            value = values[var, index]
            dims = ty.shape if hasattr(ty, "shape") else ty.values
            given = value.shape if hasattr(value, "shape") else value
            for dim, size in zip(dims or (), given, strict=True):
                if not hasattr(dim, "value"):
                    found.setdefault(dim, int(size))
        return found

    def resolved(self, expr: Any) -> Any:
        """`expr` without variables of what is no call."""
        from tvm import relax

        if isinstance(expr, relax.Var) and expr in self._aliases:
            return self.resolved(self._aliases[expr])
        if isinstance(expr, relax.TupleGetItem):
            whole = self.resolved(expr.tuple_value)
            if isinstance(whole, relax.Tuple):
                return self.resolved(whole.fields[expr.index])
            return relax.TupleGetItem(whole, expr.index)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.resolved(field) for field in expr.fields])
        return expr

    def read_after(self, stop: int) -> set[Leaf]:
        """What the calls from `stop` on read, and the region gives."""
        exprs = [arg for _, call in self.calls[stop:] for arg in call.args]
        return {leaf for expr in (*exprs, self._region.body.body) for leaf in self._read(expr)}

    def _read(self, expr: Any) -> Iterator[Leaf]:
        from tvm import relax

        expr = self.resolved(expr)
        if isinstance(expr, relax.Var):
            yield from _leaves(expr)
        elif isinstance(expr, relax.TupleGetItem):
            yield expr.tuple_value, int(expr.index)
        elif isinstance(expr, relax.Tuple):
            for field in expr.fields:
                yield from self._read(field)

    def function_of(self, var: Any) -> Any:
        """The composite that is bound to `var`; None where none is."""
        return self._functions.get(var)

    @property
    def codegen(self) -> str:
        """Whose region it is."""
        return str(self._region.attrs["Codegen"])


class _WindowMaker:
    """Makes one window."""

    def __init__(self, pieces: RegionPieces, start: int, stop: int) -> None:
        self._pieces = pieces
        self._calls = pieces.calls[start:stop]
        self._stop = stop
        self._params: dict[Leaf, Any] = {}
        self._inside: dict[Any, Any] = {}  # variables of the region, as they are in the window
        self._bindings: list[Any] = []

    def window(self) -> Window:
        from tvm import relax
        from tvm.relax.utils import copy_with_new_vars

        for var, call in self._calls:
            callee = self._callee(call.op)
            args = [self._expression(self._pieces.resolved(arg)) for arg in call.args]
            new = relax.Call(callee, args, call.attrs, call.ty_args, call.span, call.ty)
            self._inside[var] = relax.Var(var.name, var.ty)
            self._bindings.append(relax.VarBinding(self._inside[var], new))
        read = self._pieces.read_after(self._stop)
        writes = tuple(
            leaf for var, _ in self._calls for leaf in _leaves(var) if leaf in read
        ) or tuple(_leaves(self._calls[-1][0]))
        results = [_item(self._inside[var], index) for var, index in writes]
        blocks = [relax.BindingBlock(self._bindings)]
        reads, params = tuple(self._params), list(self._params.values())
        function = _function(params, blocks, results)
        sizes = tuple(relax.analysis.free_symbolic_vars(function))
        if sizes:
            params.append(relax.Var("sizes", relax.ShapeType(list(sizes))))
            function = _function(params, blocks, results)
        region = copy_with_new_vars(function).with_attr("Codegen", self._pieces.codegen)
        return Window(region, reads, writes, sizes)

    def _callee(self, callee: Any) -> Any:
        from tvm import relax

        function = self._pieces.function_of(callee)
        if function is None:  # a call of an operator, or of something else that is known outside
            return callee
        if callee not in self._inside:
            self._inside[callee] = relax.Var(callee.name, callee.ty)
            self._bindings.append(relax.VarBinding(self._inside[callee], function))
        return self._inside[callee]

    def _expression(self, expr: Any) -> Any:
        from tvm import relax

        if isinstance(expr, relax.Var):
            if expr in self._inside:
                return self._inside[expr]
            leaves = [self._param(leaf) for leaf in _leaves(expr)]
            return relax.Tuple(leaves) if _fields(expr) is not None else leaves[0]
        if isinstance(expr, relax.TupleGetItem):
            if expr.tuple_value in self._inside:
                return relax.TupleGetItem(self._inside[expr.tuple_value], expr.index)
            return self._param((expr.tuple_value, int(expr.index)))
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._expression(field) for field in expr.fields])
        return expr

    def _param(self, leaf: Leaf) -> Any:
        from tvm import relax

        if leaf not in self._params:
            var, index = leaf
            name = var.name if index is None else f"{var.name}_{index}"
            ty = var.ty if index is None else var.ty.fields[index]
            self._params[leaf] = relax.Var(name, ty)
        return self._params[leaf]


def module_of(windows: Sequence[Window]) -> IRModule:
    """A module with each window as a region, and the function ``main_<i>`` that calls window i."""
    from tvm import relax
    from tvm.relax.utils import copy_with_new_vars

    builder = relax.BlockBuilder()
    for number, window in enumerate(windows):
        name = f"region_{number}"
        region = builder.add_func(window.function.with_attr("global_symbol", name), name)
        params = list(copy_with_new_vars(window.function).params)
        with builder.function(f"main_{number}", params):
            with builder.dataflow():
                result = builder.emit_output(relax.Call(region, params))
            builder.emit_func_output(result)
    return relax.transform.Normalize()(builder.get())


def _function(params: Iterable[Any], blocks: list[Any], leaves: Sequence[Any]) -> Any:
    """A function that gives `leaves`: one, or the tuple of them."""
    from tvm import relax
    from tvm.relax.expr import _update_type

    result = leaves[0] if len(leaves) == 1 else relax.Tuple(leaves)
    body = relax.SeqExpr(blocks, result)
    _update_type(body, result.ty)
    return relax.Function(list(params), body, result.ty, is_pure=True)


def _fields(var: Any) -> Any:
    """The types in a tuple; None for what is no tuple."""
    from tvm.ir import TupleType

    if not isinstance(var.ty, TupleType):
        return None
    if any(isinstance(field, TupleType) for field in var.ty.fields):
        raise ModelError(f"`{var.name}` is a tuple of tuples, which cannot be taken apart")
    return var.ty.fields


def _leaves(var: Any) -> list[Leaf]:
    fields = _fields(var)
    return [(var, None)] if fields is None else [(var, index) for index in range(len(fields))]


def _item(var: Any, index: int | None) -> Any:
    from tvm import relax

    return var if index is None else relax.TupleGetItem(var, index)
