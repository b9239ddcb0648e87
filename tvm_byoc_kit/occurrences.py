"""The ops of a module as they are executed: regions and composites entered at each of their calls.

A `Walk` follows the values from op to op, through tuples, branches of ``If``, and the boundaries
of regions and composites.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tvm_byoc_kit.rewriting import host_functions, is_tensor_constant, known_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tvm import IRModule
    from tvm.relax import Call

__all__ = ["Occurrence", "RegionCall", "Value", "Walk", "constants_of", "producers_of"]

# What an expression stands for:
#   ("op", position)      the result of Walk.ops[position]
#   ("item", value, i)    item i of a tuple that an op gives
#   ("tuple", values)     a tuple
#   ("param", function, i)  parameter i of a host function
#   ("const", address)    a constant of Walk.constants
#   ("any", values)       one of several, or something computed from them that is no op
#   ("fixed", text)       a shape, a number, a name; the text is empty where symbols are in it
Value: TypeAlias = tuple[Any, ...]

# Calls that compile to no work of their own.
_BOOKKEEPING = frozenset({"relax.shape_of", "relax.memory.view", "relax.assert_op"})


@dataclass(frozen=True)
class Occurrence:
    """One call of an operator at one place of the execution.

    Parameters
    ----------
    call : relax.Call
    name : str
        The variable that it is bound to, where it stands.
    function : str
        The host function.
    region, composite : str or None
        The region's name, and the pattern's.
    in_dataflow : bool
        Whether it stands in a dataflow block.
    operands : tuple of Value
        What its arguments stand for.
    """

    call: Call
    name: str
    function: str
    region: str | None
    composite: str | None
    in_dataflow: bool
    operands: tuple[Value, ...]


@dataclass(frozen=True)
class RegionCall:
    """One call of a region.

    Parameters
    ----------
    name : str
        Of the region: the function's, with ``#2`` and so on from its second call on.
    function : str
    call : relax.Call
    callee : relax.Function
    operands : tuple of Value
    composites : tuple of str
        Patterns, in the order of their calls.
    first, last : int
        Its ops are ``Walk.ops[first:last]``.
    inner_constants : tuple of int
        Addresses of the constants inside it.
    """

    name: str
    function: str
    call: Call
    callee: Any
    operands: tuple[Value, ...]
    composites: tuple[str, ...]
    first: int
    last: int
    inner_constants: tuple[int, ...]


@dataclass(frozen=True)
class _Place:
    function: str
    region: str | None = None
    composite: str | None = None
    in_dataflow: bool = False


class Walk:
    """The ops and the calls of regions of a module, in the order of execution.

    Parameters
    ----------
    mod : tvm.IRModule

    Attributes
    ----------
    ops : list of Occurrence
    regions : list of RegionCall
    constants : dict of int to constant
        By the address of the object.
    """

    def __init__(self, mod: IRModule) -> None:
        self.ops: list[Occurrence] = []
        self.regions: list[RegionCall] = []
        self.constants: dict[int, Any] = {}
        self._mod = mod
        self._calls: Counter[str] = Counter()
        self._composites: list[str] = []
        self._read_constants: list[int] = []
        # One table for all functions: a variable of a function that is entered again is bound
        # again, and nothing reads the old value after that.
        self._values: dict[Any, Value] = {}
        self._local_functions: dict[Any, Any] = {}
        for var, function in host_functions(mod):
            for number, param in enumerate(function.params):
                self._values[param] = ("param", var.name_hint, number)
            self._sequence(function.body, _Place(var.name_hint))

    def _sequence(self, body: Any, place: _Place) -> Value:
        from tvm import relax

        if not isinstance(body, relax.SeqExpr):
            return self._value(body, "result", place)
        for block in body.blocks:
            inside = replace(place, in_dataflow=isinstance(block, relax.DataflowBlock))
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, relax.Function):
                    self._local_functions[binding.var] = value
                self._values[binding.var] = self._value(value, binding.var.name, inside)
        return self._value(body.body, "result", place)

    def _value(self, expr: Any, name: str, place: _Place) -> Value:
        from tvm import relax

        if isinstance(expr, relax.Var):
            return self._values.get(expr, ("fixed", ""))
        if isinstance(expr, relax.Call):
            return self._call(expr, name, place)
        if isinstance(expr, relax.If):
            self._value(expr.cond, name, place)
            branches = (expr.true_branch, expr.false_branch)
            return _any_of([self._sequence(branch, place) for branch in branches])
        if isinstance(expr, relax.Tuple):
            return ("tuple", tuple(self._value(field, name, place) for field in expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            return _item(self._value(expr.tuple_value, name, place), int(expr.index))
        return self._constant(expr) if is_tensor_constant(expr) else _fixed(expr)

    def _constant(self, expr: Any) -> Value:
        address = expr.__chandle__()
        self.constants[address] = expr
        self._read_constants.append(address)
        return ("const", address)

    def _call(self, call: Any, name: str, place: _Place) -> Value:
        from tvm.ir import GlobalVar, Op

        callee = call.op
        operands = tuple(self._value(arg, name, place) for arg in call.args)
        if isinstance(callee, Op):
            return self._op(call, str(callee.name), name, place, operands)
        if isinstance(callee, GlobalVar):
            function = self._mod.functions.get(callee)
            if function is not None and _attr(function, "Codegen"):
                return self._region(callee.name_hint, call, function, place, operands)
            if function is not None and not (
                _attr(function, "Composite") or _attr(function, "Primitive")
            ):
                return _any_of(operands)  # a host function: its ops are listed as its own
        else:
            function = self._local_functions.get(callee)
        if function is None:
            return _any_of(operands)
        composite = _attr(function, "Composite")
        if composite is not None:
            self._composites.append(composite)
        inside = _Place(place.function, place.region, composite or place.composite)
        return self._enter(function, operands, inside)

    def _op(
        self, call: Any, op: str, name: str, place: _Place, operands: tuple[Value, ...]
    ) -> Value:
        if op in _BOOKKEEPING:
            return _any_of(operands)
        self.ops.append(Occurrence(call=call, name=name, operands=operands, **vars(place)))
        return ("op", len(self.ops) - 1)

    def _enter(self, function: Any, operands: tuple[Value, ...], place: _Place) -> Value:
        for param, operand in zip(function.params, operands, strict=False):
            self._values[param] = operand
        return self._sequence(function.body, place)

    def _region(
        self, function: str, call: Any, callee: Any, place: _Place, operands: tuple[Value, ...]
    ) -> Value:
        self._calls[function] += 1
        times = self._calls[function]
        name = function if times == 1 else f"{function}#{times}"
        first, self._composites, self._read_constants = len(self.ops), [], []
        result = self._enter(callee, operands, _Place(place.function, name))
        self.regions.append(
            RegionCall(
                name,
                function,
                call,
                callee,
                operands,
                tuple(self._composites),
                first,
                len(self.ops),
                tuple(dict.fromkeys(self._read_constants)),
            )
        )
        return result


def _item(value: Value, index: int) -> Value:
    if value[0] == "tuple":
        item: Value = value[1][index]
        return item
    return value if value[0] == "any" else ("item", value, index)


def _any_of(values: Iterable[Value]) -> Value:
    return ("any", tuple(dict.fromkeys(leaf for value in values for leaf in _leaves(value))))


def _leaves(value: Value) -> Iterator[Value]:
    """The values in `value` that are no tuple or choice of others."""
    if value[0] in ("tuple", "any"):
        for inner in value[1]:
            yield from _leaves(inner)
    else:
        yield value


def _fixed(expr: Any) -> Value:
    from tvm import relax
    from tvm.ir import GlobalVar

    if isinstance(expr, relax.ShapeExpr):
        sizes = known_sizes(expr.values)
        return ("fixed", "" if sizes is None else str(sizes))
    if isinstance(expr, GlobalVar):
        return ("fixed", expr.name_hint)
    return ("fixed", str(getattr(expr, "value", "")))


def producers_of(values: Iterable[Value]) -> tuple[int, ...]:
    """Positions of the ops that `values` come from, each once, in ascending order."""
    return tuple(sorted(set(_positions(values, "op"))))


def constants_of(values: Iterable[Value]) -> tuple[int, ...]:
    """Addresses of the constants among `values`, each once."""
    return tuple(dict.fromkeys(_positions(values, "const")))


def _positions(values: Iterable[Value], kind: Literal["op", "const"]) -> Iterator[int]:
    for value in values:
        if value[0] in ("tuple", "any"):
            yield from _positions(value[1], kind)
        elif value[0] == "item":
            yield from _positions([value[1]], kind)
        elif value[0] == kind:
            yield value[1]


def _attr(function: Any, key: str) -> str | None:
    attrs = function.attrs
    return str(attrs[key]) if attrs is not None and key in attrs else None
