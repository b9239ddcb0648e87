"""What the tests of predicates share: small modules, and what patterns make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from hypothesis import reject
from hypothesis import strategies as st
from tvm import relax
from tvm.relax.transform import FuseOpsByPattern

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.backends.upstream import upstream_patterns
from tvm_byoc_kit.predicates import nested

Tensor = tuple[tuple[int | str, ...], str]


@dataclass(frozen=True)
class Case:
    """What isolates a predicate, and a near miss.

    Parameters
    ----------
    refused : tvm.IRModule
    reason : str
        The one against it.
    near : tvm.IRModule
        As much as possible the same, and accepted.
    taken : list of str
        Patterns that match the near miss.
    rest : list of str
        Patterns that match what is left of the refused one.
    stricter : bool
        Whether upstream takes what is refused.
    beyond : bool
        Whether upstream does not take the near miss.
    """

    refused: tvm.IRModule
    reason: str
    near: tvm.IRModule
    taken: tuple[str, ...]
    rest: tuple[str, ...] = ()
    stricter: bool = False
    beyond: bool = False


def check(case: Case, backend: str) -> None:
    """That `case` is true of the kit's table, and of upstream's."""
    assert reasons(case.refused, backend) == [case.reason]
    assert kit_composites(case.refused, backend) == case.rest
    assert reasons(case.near, backend) == []
    assert kit_composites(case.near, backend) == case.taken
    assert (upstream_composites(case.near, backend) != case.taken) == case.beyond
    theirs = upstream_composites(case.refused, backend)
    assert (theirs not in (None, case.rest)) == case.stricter


def told(mod: tvm.IRModule, backend: str) -> list[str]:
    """The reasons of predicates in the coverage report."""
    ops = byoc.partition(mod, backend).coverage.ops
    return [op.reason.text for op in ops if op.reason is not None and op.reason.kind == "refused"]


def isolated(cases: Mapping[str, Case], table: Mapping[str, Sequence[Any]]) -> set[Any]:
    """The predicates that `cases` are refused by."""
    asked = (
        (call, table.get(call.op.name, ())) for c in cases.values() for call in calls(c.refused)
    )
    first = (next((check for check in checks if check(call)), None) for call, checks in asked)
    return {check for check in first if check is not None}


def module(tensors: Sequence[Tensor], body: Callable[..., Any], name: str = "main") -> tvm.IRModule:
    """A function of `tensors`, each a shape (strings are symbolic dimensions) and a dtype."""
    builder, symbols = relax.BlockBuilder(), dict[str, Any]()
    variables = [
        relax.Var(f"x{i}", relax.TensorType([_dimension(dim, symbols) for dim in dims], dtype))
        for i, (dims, dtype) in enumerate(tensors)
    ]
    with builder.function(name, variables):
        with builder.dataflow():
            result = builder.emit_output(body(*variables))
        builder.emit_func_output(result)
    return builder.finalize()


def _dimension(dim: int | str, symbols: dict[str, Any]) -> Any:
    if isinstance(dim, int):
        return dim
    return symbols.setdefault(dim, tvm.tirx.Var(dim, "int64"))


@st.composite
def products(
    draw: st.DrawFn,
    batches: st.SearchStrategy[Any],
    sizes: st.SearchStrategy[Any],
    dtypes: st.SearchStrategy[str],
    results: st.SearchStrategy[str],
) -> tuple[tvm.IRModule, bool]:
    """A ``matmul`` of any operands that go together, and whether the right one is transposed."""
    left, right = draw(batches), draw(batches)
    m, k, n = (draw(sizes | st.just(name)) for name in "mkn")
    kinds, result, is_transposed = (draw(dtypes), draw(dtypes)), draw(results), draw(st.booleans())
    rows = (n, k) if is_transposed else (k, n)
    axes = [*range(len(right)), len(right) + 1, len(right)]

    def body(x: Any, y: Any) -> Any:
        y = relax.op.permute_dims(y, axes) if is_transposed else y
        return relax.op.matmul(x, y, out_dtype=result)

    try:
        mod = module([((*left, m, k), kinds[0]), ((*right, *rows), kinds[1])], body)
    except ValueError:  # shapes that go with no matmul
        reject()
    return mod, is_transposed


def upstream_composites(mod: tvm.IRModule, backend: str) -> tuple[str, ...] | None:
    """What upstream's own table matches; None where its check functions fail."""
    patterns = upstream_patterns(f"tvm.relax.backend.cuda.{backend}", f"{backend}.")()
    try:
        fused = FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=True)(mod)
    except (AttributeError, KeyError, TypeError, ValueError, tvm.error.InternalError):
        return None
    return composites(fused)


def kit_composites(mod: tvm.IRModule, backend: str) -> tuple[str, ...]:
    """What the kit's table matches."""
    chosen = get_backend(backend)
    patterns = chosen.guarded_patterns()
    if chosen.partitioner is not None:
        return composites(chosen.partitioner(mod, patterns))
    fuse = FuseOpsByPattern(patterns, chosen.bind_constants, annotate_codegen=True)
    return composites(fuse(mod))


def composites(mod: tvm.IRModule) -> tuple[str, ...]:
    """Names of the patterns that matched, in alphabetical order, without the backend's."""
    found: list[str] = []

    def look(expr: Any) -> None:
        if isinstance(expr, relax.Function) and expr.attrs and "Composite" in expr.attrs:
            found.append(str(expr.attrs["Composite"]).partition(".")[2])

    for function in mod.functions.values():
        if isinstance(function, relax.Function) and function.attrs and "Codegen" in function.attrs:
            relax.analysis.post_order_visit(function, look)
    return tuple(sorted(found))


def unshaped(count: int, dtype: str = "float16") -> list[relax.Var]:
    """Variables of tensors whose sizes are not known."""
    return [relax.Var(f"x{i}", relax.TensorType(ndim=4, dtype=dtype)) for i in range(count)]


def normal(call: relax.Call) -> relax.Call:
    """`call` with its type."""
    return relax.BlockBuilder().normalize(call)


def calls(mod: tvm.IRModule) -> list[relax.Call]:
    """The calls of ``main``, in order; operands that others of them compute are calls too."""
    blocks = mod["main"].body.blocks
    bindings = {binding.var: binding.value for block in blocks for binding in block.bindings}
    values = bindings.values()
    return [nested(value, bindings) for value in values if isinstance(value, relax.Call)]


def reasons(mod: tvm.IRModule, backend: str) -> list[str]:
    """The reasons against calls of ``main``."""
    refusal = get_backend(backend).refusal
    return [reason for call in calls(mod) if (reason := refusal(call)) is not None]
