"""Reads a Relax function into a `Graph`; `graph.read_graph` is the way in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir.prim import expr as prim

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.graph import Call, Graph, Op, Operand, Shape, Value
from tvm_byoc_kit.op_names import UniqueNames
from tvm_byoc_kit.rewriting import array_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy as np

    from tvm_byoc_kit.graph import Dim

__all__ = ["RegionReader"]

Values = tuple[Value, ...]  # an expression's tensors, tuples flattened


class RegionReader:
    """One reading of one region.

    Parameters
    ----------
    function : tvm.relax.Function
    constant_names : mapping of TVM's constants to str, optional
    """

    def __init__(self, function: Any, constant_names: Mapping[Any, str] | None) -> None:
        self._function = function
        self._constant_names = constant_names or {}
        self._name = _attr(function, "global_symbol")
        self._where = f"region `{self._name}`"
        self._names = UniqueNames()
        self._symbol_names = UniqueNames()
        self._symbols: dict[Any, str] = {}  # of the region, by variable
        self._sources: dict[str, tuple[int, int]] = {}
        self._values: dict[Any, Values] = {}  # by variable of the region, or constant
        self._composites: dict[Any, Any] = {}
        self._constants: list[Value] = []
        self._calls: list[Call] = []

    def read(self) -> Graph:
        """The whole region."""
        if not self._name:
            raise ModelError(
                "a region has no `global_symbol`; compile it with RunCodegen, or set the attribute"
            )
        inputs = tuple(
            self._parameter(number, var) for number, var in enumerate(self._function.params)
        )
        for var, value in _bindings(self._function, self._where):
            if isinstance(value, relax.Function):
                self._composites[var] = value
            else:
                self._values[var] = self._expression(value, var.name)
        outputs = self._expression(self._function.body.body, "output")
        return Graph(
            name=self._name,
            backend=_attr(self._function, "Codegen"),
            inputs=inputs,
            constants=tuple(self._constants),
            calls=tuple(self._calls),
            outputs=outputs,
            symbols=self._sources,
        )

    def _parameter(self, number: int, var: Any) -> Value:
        where = f"{self._where}, parameter `{var.name}`"
        if isinstance(var.ty, relax.ShapeType):
            if var.ty.values is None:
                raise ModelError(f"{where}: a shape whose rank is unknown cannot be read")
            held = var.ty.values
            value = self.new_value(var.name, (len(held),), "int64", self._dims(held, number))
        else:
            shape, dtype = _shape_and_dtype(var.ty, where)
            value = self.new_value(var.name, self._dims(shape, number), dtype)
        self._values[var] = (value,)
        return value

    def _dims(self, dims: Iterable[Any], number: int) -> tuple[Dim, ...]:
        """Dimensions of parameter `number`; notes where the symbols among them are found."""
        found = []
        for axis, dim in enumerate(dims):
            text = self.dimension(dim, self._symbols)
            if isinstance(dim, ir.Var):
                self._sources.setdefault(cast("str", text), (number, axis))
            found.append(text)
        return tuple(found)

    def dimension(self, dim: Any, symbols: dict[Any, str]) -> Dim:
        """A size, or the text of an expression; symbols that `symbols` does not know get a name."""
        return _render(dim, lambda var: symbols.get(var) or self._symbol(var))

    def _symbol(self, var: Any) -> str:
        if var not in self._symbols:
            self._symbols[var] = self._symbol_names(var.name)
        return self._symbols[var]

    def new_value(
        self,
        name: str,
        shape: tuple[Dim, ...],
        dtype: str,
        dims: tuple[Dim, ...] | None = None,
        data: np.ndarray | None = None,
    ) -> Value:
        """A value with a name of its own."""
        return Value(self._names(name), shape, dtype, dims, data)

    def constant(self, expr: Any) -> Value:
        """The value of a constant, the same however often it is read."""
        if expr not in self._values:
            shape, dtype = _shape_and_dtype(expr.ty, self._where)
            data = array_of(expr)
            if data is None:  # a dtype that NumPy lacks: TVM's own conversion copies
                data = expr.value.numpy()
            data.flags.writeable = False
            name = str(self._constant_names.get(expr, f"constant_{len(self._constants)}"))
            value = self.new_value(name, tuple(map(int, shape)), dtype, data=data)
            self._constants.append(value)
            self._values[expr] = (value,)
        return self._values[expr][0]

    def _expression(self, expr: Any, name: str) -> Values:
        if expr in self._values:
            return self._values[expr]
        if isinstance(expr, ir.GenericConst):
            return (self.constant(expr),)
        if isinstance(expr, ir.Call):
            return self._call(expr, name)
        return _members(expr, self._where, lambda member: self._expression(member, name))

    def _call(self, expr: Any, name: str) -> Values:
        composite = self._composites.get(expr.op)
        if composite is None:
            raise ModelError(
                f"{self._where}: expected a call of a composite function, found a call of {expr.op}"
            )
        pattern = _attr(composite, "Composite")
        if not pattern:
            raise ModelError(
                f"{self._where}: an inner function has no `Composite` attribute; partition with "
                "FuseOpsByPattern"
            )
        arguments = [self._expression(arg, name) for arg in expr.args]
        where = f"{self._where}, composite `{pattern}`"
        call = _CompositeReader(self, where, composite, arguments).read(pattern)
        self._calls.append(call)
        return call.results


class _CompositeReader:
    """One reading of a composite's body, with the arguments of one call put in."""

    def __init__(
        self, region: RegionReader, where: str, function: Any, arguments: list[Values]
    ) -> None:
        self._region = region
        self._where = where
        self._function = function
        self._arguments = dict(zip(function.params, arguments, strict=True))
        self._symbols = dict(_bound_symbols(self._arguments))
        self._read: dict[Any, Values] = {}  # arguments and constants, in the order of first use
        self._values: dict[Any, Values] = {}  # by variable of the body
        self._ops: list[Op] = []

    def read(self, name: str) -> Call:
        """The call of the composite called `name`."""
        for var, value in _bindings(self._function, self._where):
            if isinstance(value, ir.Call):
                self._values[var] = self._op(value, var.name)
            else:
                self._values[var] = self._expression(value)
        results = self._expression(self._function.body.body)
        inputs = tuple(value for values in self._read.values() for value in values)
        return Call(name, inputs, tuple(self._ops), results)

    def _op(self, expr: Any, name: str) -> Values:
        if not isinstance(expr.op, ir.Op):
            raise ModelError(
                f"{self._where}: can only hold calls of operators, found a call of {expr.op} "
                f"({type(expr.op).__name__})"
            )
        where = f"{self._where}, {expr.op.name}"
        operands = tuple(self._operand(arg, where) for arg in expr.args)
        results = []
        for ty in _flat_types(expr.ty):
            shape, dtype = _shape_and_dtype(ty, where)
            results.append(self._region.new_value(name, self._dims(shape), dtype))
        attrs = {
            key: self._plain(value, f"{where}: attribute `{key}`")
            for key, value in _attributes(expr.attrs)
        }
        self._ops.append(Op(str(expr.op.name), operands, attrs, tuple(results)))
        return tuple(results)

    def _operand(self, arg: Any, where: str) -> Operand:
        if isinstance(arg, relax.ShapeExpr):
            return Shape(self._dims(arg.values))
        if isinstance(arg, ir.Tuple):
            return tuple(self._operand(field, where) for field in arg.fields)
        if isinstance(arg, ir.StringImm) or isinstance(arg.ty, ir.PrimType):
            return cast("Operand", self._plain(arg, where))
        values = self._expression(arg)
        return values if isinstance(arg.ty, ir.TupleType) else values[0]

    def _expression(self, expr: Any) -> Values:
        if expr in self._values:
            return self._values[expr]
        if expr in self._arguments:
            return self._read.setdefault(expr, self._arguments[expr])
        if isinstance(expr, ir.GenericConst):
            return self._read.setdefault(expr, (self._region.constant(expr),))
        return _members(expr, self._where, self._expression)

    def _dims(self, dims: Iterable[Any]) -> tuple[Dim, ...]:
        return tuple(self._region.dimension(dim, self._symbols) for dim in dims)

    def _plain(self, value: Any, where: str) -> Any:
        """A number, text or attribute of TVM's as a plain Python value."""
        if isinstance(value, (prim.IntImm, prim.FloatImm, ir.StringImm)):
            value = value.value
        elif isinstance(value, ir.PrimType):
            value = value.dtype
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, Sequence):
            return tuple(self._plain(item, where) for item in value)
        if isinstance(value, tvm_ffi.dtype):
            return None if str(value) in ("void", "") else str(value)
        if isinstance(value, (prim.ExprWithOp, ir.Var)):
            return self._region.dimension(value, self._symbols)
        if isinstance(value, tirx.IndexMap):
            return _index_map(value)
        raise ModelError(f"{where}: a {type(value).__name__} cannot be read: {value}")


def _bound_symbols(arguments: dict[Any, Values]) -> Iterator[tuple[Any, str]]:
    """A composite's own symbols, as dimensions of the region that its arguments have."""
    for param, values in arguments.items():
        for ty, value in zip(_flat_types(param.ty), values, strict=True):
            declared = ty if isinstance(ty, relax.ShapeType) else ty.shape
            given = value.shape if value.dims is None else value.dims
            for dim, size in zip(declared.values, given, strict=True):
                if isinstance(dim, ir.Var):
                    yield dim, str(size)


def _attr(function: Any, key: str) -> str:
    """A text among the attributes of a function; empty when it is not there."""
    return str(function.attrs[key]) if function.attrs and key in function.attrs else ""


def _bindings(function: Any, where: str) -> Iterator[tuple[Any, Any]]:
    for block in function.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding):
                raise ModelError(f"{where}: cannot read a {type(binding).__name__}: {binding}")
            yield binding.var, binding.value


def _members(expr: Any, where: str, read: Callable[[Any], Values]) -> Values:
    """The values of a tuple, or of one field of a tuple; `read` gives those of its members."""
    if isinstance(expr, ir.TupleGetItem):
        return (read(expr.tuple_value)[expr.index],)
    if isinstance(expr, ir.Tuple):
        return tuple(value for field in expr.fields for value in read(field))
    raise ModelError(f"{where}: cannot read a {type(expr).__name__}: {expr}")


def _flat_types(ty: Any) -> Iterator[Any]:
    if isinstance(ty, ir.TupleType):
        for field in ty.fields:
            yield from _flat_types(field)
    else:
        yield ty


def _shape_and_dtype(ty: Any, where: str) -> tuple[Sequence[Any], str]:
    """Dimensions and dtype of a tensor's type."""
    if not isinstance(ty, relax.TensorType):
        raise ModelError(f"{where}: expected a tensor, found a {ty}")
    dims = getattr(ty.shape, "values", None)
    if dims is None and isinstance(ty.shape, ir.Var):
        dims = ty.shape.ty.values
    if dims is None or ty.dtype is None:
        raise ModelError(
            f"{where}: shape and dtype must be known; annotate them, for instance with "
            "relax.transform.Normalize or a match_cast"
        )
    return dims, str(ty.dtype)


def _attributes(attrs: Any) -> Iterator[tuple[str, Any]]:
    """The fields of an operator's attributes, those of its parent types too."""
    if attrs is None:
        return
    info = type(attrs).__tvm_ffi_type_info__
    while info is not None:
        for field in info.fields:
            yield field.name, getattr(attrs, field.name)
        info = info.parent_type_info


def _index_map(index_map: Any) -> tuple[Dim, ...]:
    """The final indices of a map, over the initial ones, which are called `i0`, `i1` and so on."""
    names = {var: f"i{axis}" for axis, var in enumerate(index_map.initial_indices)}
    return tuple(_render(index, names.__getitem__) for index in index_map.final_indices)


_INFIX = {prim.Add: "+", prim.Sub: "-", prim.Mul: "*", prim.FloorDiv: "//", prim.FloorMod: "%"}
_CALLS = {prim.Max: "max", prim.Min: "min"}


def _render(dim: Any, symbol: Callable[[Any], str]) -> Dim:
    """A dimension; text that `graph.evaluate` understands when it is symbolic."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, prim.IntImm):
        return int(dim.value)
    if isinstance(dim, ir.Var):
        return symbol(dim)
    if isinstance(dim, prim.Cast):
        return _render(dim.value, symbol)
    if type(dim) in _INFIX:
        left, right = (_grouped(_render(side, symbol)) for side in (dim.a, dim.b))
        return f"{left} {_INFIX[type(dim)]} {right}"
    if type(dim) in _CALLS:
        return f"{_CALLS[type(dim)]}({_render(dim.a, symbol)}, {_render(dim.b, symbol)})"
    raise ModelError(f"a dimension `{dim}` cannot be read: it is more than arithmetic on sizes")


def _grouped(dim: Dim) -> str:
    text = str(dim)
    return text if text.isalnum() or text.isidentifier() else f"({text})"
