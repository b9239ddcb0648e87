"""Upstream's patterns, and those of products with more activations.

Upstream's check functions of products are replaced: they know no bfloat16, and refuse without a
word what `predicates` gives reasons for. What they ask of a match as a whole is asked here too.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.upstream import upstream_patterns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.relax.transform import FusionPattern, PatternCheckContext

__all__ = ["make_patterns"]

_ACTIVATIONS = {
    "": None,
    "_relu": "relax.nn.relu",
    "_gelu": "relax.nn.gelu",
    "_silu": "relax.nn.silu",
}
_PRODUCTS = ("matmul_transposed", "matmul", "conv2d")  # the first two match alike
_RESIDUALS = ("relax.add", "relax.multiply")


def make_patterns() -> list[FusionPattern]:
    """The patterns, highest priority first: those that take more ops stand before."""
    theirs = upstream_patterns("tvm.relax.backend.cuda.cutlass", "cutlass.")()
    known = {str(pattern.name) for pattern in theirs}
    more = [pattern for pattern in _products() if pattern.name not in known]
    return [*more, *(_with_own_check(pattern) for pattern in theirs)]


def _with_own_check(pattern: FusionPattern) -> FusionPattern:
    if not str(pattern.name).startswith(tuple(f"cutlass.{name}" for name in _PRODUCTS)):
        return pattern
    return _pattern(str(pattern.name), pattern.pattern, pattern.annotation_patterns)


def _products() -> Iterator[FusionPattern]:
    """Each product with each activation, with and without bias; with residuals first."""
    combined = list(itertools.product(_PRODUCTS, ("_bias", ""), _ACTIVATIONS))
    biased = [names for names in combined if names[1]]
    for names, operation, last in itertools.product(biased, _RESIDUALS, ("_relu", "")):
        yield _residual(*names, operation, last)
    for names in combined:
        yield _pattern("cutlass." + "".join(names), *_product(*names))
    for product, bias, activation in combined:
        if activation and product != "conv2d":
            name = f"cutlass.{product}{bias}_reshape{activation}"
            yield _pattern(name, *_reshaped(_product(product, bias, ""), activation))


def _residual(product: str, bias: str, activation: str, operation: str, last: str) -> FusionPattern:
    from tvm.relax.backend.patterns import make_residual_block_pattern

    name = f"cutlass.{product}{bias}{activation}_residual_{operation.removeprefix('relax.')}{last}"
    base = _product(product, bias, activation)
    return _pattern(name, *make_residual_block_pattern(base, operation, _ACTIVATIONS[last]))


def _product(product: str, bias: str, activation: str) -> tuple[Any, Any]:
    from tvm.relax.backend.patterns import make_fused_bias_activation_pattern, make_matmul_pattern

    op = _ACTIVATIONS[activation]
    if product == "conv2d":
        return make_fused_bias_activation_pattern("relax.nn.conv2d", bool(bias), op)  # type: ignore[no-any-return]
    return make_matmul_pattern(bool(bias), op, product == "matmul_transposed")  # type: ignore[no-any-return]


def _reshaped(product: tuple[Any, Any], activation: str) -> tuple[Any, Any]:
    """An activation of a product that was reshaped, as torch writes a linear layer.

    In memory, which is all that a kernel knows, a reshaped tensor is the same.
    """
    from tvm.relax.dpl import is_op, wildcard

    result, annotations = product
    reshaped = is_op("relax.reshape")(result, wildcard())
    return is_op(_ACTIVATIONS[activation])(reshaped), annotations


def _pattern(name: str, pattern: Any, annotations: Any) -> FusionPattern:
    from tvm.relax.transform import FusionPattern

    return FusionPattern(name, pattern, annotations, _check)


def _check(context: PatternCheckContext) -> bool:
    """That nothing else reads what a kernel keeps to itself, nor a residual depends on it."""
    from tvm.relax.backend.cuda.cutlass import _has_dependency
    from tvm.relax.backend.utils import has_leaking_intermediate_variables

    if has_leaking_intermediate_variables(context):
        return False
    residual = context.annotated_expr.get("residual")
    if residual is None:
        return True
    variables = context.value_to_bound_var
    residual = variables.get(residual, residual)
    root = variables[context.annotated_expr["root"]]
    return not _has_dependency(from_var=residual, to_var=root, var_usages=context.var_usages)
