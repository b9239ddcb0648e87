"""Names of ops, kept through partitioning.

An op is named by the variable that holds its result. `FuseOpsByPattern` and
`MergeCompositeFunctions` rename these variables, but keep the span of a call; so `tag_ops` writes
the name there, and `tag_of` reads it back from wherever the call has got to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.relax import Call

__all__ = ["OpTag", "UniqueNames", "tag_of", "tag_ops"]

# A source "file" of this name marks a tag; no path has a NUL in it.
_MARK = "tvm_byoc_kit\0"


class OpTag(NamedTuple):
    """Where an op came from.

    Parameters
    ----------
    function : str
        Name of the host function.
    name : str
        Of the op, unique in the function: as TVMScript prints the variable.
    """

    function: str
    name: str


class UniqueNames:
    """Gives names that repeat a number: Relax allows two variables of one name in a function."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def __call__(self, name: str) -> str:
        """`name`, or ``name_1`` and so on from its second use on."""
        unique, number = name, self._used.get(name, 0)
        while unique in self._used:
            number += 1
            unique = f"{name}_{number}"
        self._used[name] = number
        self._used[unique] = self._used.get(unique, 0)
        return unique


def tag_of(call: Call) -> OpTag | None:
    """What `tag_ops` wrote on `call`; None for a call that it has not seen."""
    source = call.span.source_name.name if call.span is not None else ""
    if not source.startswith(_MARK):
        return None
    _, function, name = source.split("\0")
    return OpTag(function, name)


def tag_ops(mod: IRModule) -> IRModule:
    """A module that differs from `mod` only in the spans of its calls: each is an `OpTag`.

    Parameters
    ----------
    mod : tvm.IRModule
        Functions with the attribute ``Codegen`` or ``Composite`` are left as they are.
    """
    from tvm.ir import IRModule

    from tvm_byoc_kit.rewriting import host_functions

    functions = dict(mod.functions_items())
    for var, function in host_functions(mod):
        functions[var] = _Tagger(var.name_hint).function(function)
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


class _Tagger:
    """Rebuilds one function with the same variables."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._unique = UniqueNames()

    def function(self, function: Any) -> Any:
        from tvm import relax

        for param in function.params:
            self._unique(param.name)
        return relax.Function(
            function.params,
            self._sequence(function.body),
            function.ret_ty,
            function.is_pure,
            function.attrs,
            function.span,
        )

    def _sequence(self, body: Any) -> Any:
        from tvm import relax

        if not isinstance(body, relax.SeqExpr):
            return self._expression(self._unique("result"), body)
        blocks = [
            type(block)([self._binding(binding) for binding in block.bindings], block.span)
            for block in body.blocks
        ]
        return _typed_like(body, relax.SeqExpr(blocks, body.body, body.span))

    def _binding(self, binding: Any) -> Any:
        from tvm import relax

        value = binding.value
        if isinstance(value, relax.If):  # printed before what it is bound to
            branches = (self._sequence(value.true_branch), self._sequence(value.false_branch))
            value = _typed_like(value, relax.If(value.cond, *branches, value.span))
            self._unique(binding.var.name)
        else:
            value = self._expression(self._unique(binding.var.name), value)
        if isinstance(binding, relax.MatchCast):
            return relax.MatchCast(binding.var, value, binding.ty, binding.span)
        return relax.VarBinding(binding.var, value, binding.span)

    def _expression(self, name: str, value: Any) -> Any:
        """`value` with its calls tagged; `value` itself where it has none."""
        from tvm import relax

        if isinstance(value, relax.Call):
            return self._call(name, value)
        return self.function(value) if isinstance(value, relax.Function) else value

    def _call(self, name: str, call: Any) -> Any:
        from tvm import relax
        from tvm.ir import SourceName, Span

        span = Span(SourceName(f"{_MARK}{self._function}\0{name}"), 0, 0, 0, 0)
        args = [
            self._call(self._unique(name), arg) if isinstance(arg, relax.Call) else arg
            for arg in call.args
        ]
        return relax.Call(call.op, args, call.attrs, call.ty_args, span, call.ty)


def _typed_like(old: Any, new: Any) -> Any:
    from tvm.relax.expr import _update_type

    if old.ty is not None:
        _update_type(new, old.ty)
    return new
