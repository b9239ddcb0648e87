"""Ops that TVM's importer does not know or converts wrongly, in terms of ops that it does.

Each function stands for an op, with the op's own arguments, and is traced by PyTorch, which also
works out shapes and dtypes. One that returns NotImplemented leaves the op as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.torch.converters import supported_ops
from tvm_byoc_kit.frontends.torch.exporting import quiet

aten = torch.ops.aten

Decomposition = Callable[..., Any]


def decompose(program: torch.export.ExportedProgram, origin: str) -> torch.export.ExportedProgram:
    """`program` in ops that have a converter, as far as decompositions reach.

    First PyTorch's default decompositions and the kit's own; then, for what has no converter still,
    PyTorch's others.

    Raises
    ------
    ModelError
        When PyTorch fails at it.
    """
    table = {**torch.export.default_decompositions(), **OWN}
    try:
        with quiet():
            program = program.run_decompositions(table)
    except Exception as error:  # PyTorch raises many unrelated types
        raise ModelError(
            f"PyTorch cannot decompose {origin} into core ops: {type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}"
        ) from error
    supported = supported_ops()
    for _ in range(_ROUNDS):
        unknown = {
            node.target
            for module in graph_modules(program.graph_module)
            for node in module.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload)  # noqa: SLF001 - it has no other name
            and node.target.__name__ not in supported
        }
        further = get_decompositions(sorted(unknown, key=str))
        if not further:
            break
        try:
            with quiet():
                program = program.run_decompositions({**further, **OWN})
        except Exception:  # noqa: BLE001 - some of PyTorch's cannot be traced; screening names the op
            break
    return program


# A decomposition may give ops that have to be decomposed in turn.
_ROUNDS = 3


def graph_modules(root: torch.fx.GraphModule) -> list[torch.fx.GraphModule]:
    """`root` and the branches of its torch.cond."""
    return [module for module in root.modules() if isinstance(module, torch.fx.GraphModule)]


def add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    if _both_bool(x, y):
        return torch.logical_or(x, y)
    return NotImplemented if alpha == 1 else x + y * alpha


def sub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return NotImplemented if alpha == 1 else x - y * alpha


def mul(x: Any, y: Any) -> Any:
    return torch.logical_and(x, y) if _both_bool(x, y) else NotImplemented


def _both_bool(x: Any, y: Any) -> bool:
    return all(
        isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype is torch.bool)
        for value in (x, y)
    )


def divide(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return torch.true_divide(x, y)
    if rounding_mode == "floor":
        return torch.floor_divide(x, y)
    if _is_floating(x, y):
        return torch.trunc(torch.true_divide(x, y))
    quotient = torch.floor_divide(torch.abs(_tensor(x, y)), torch.abs(_tensor(y, x)))
    return quotient * torch.sign(_tensor(x, y)) * torch.sign(_tensor(y, x))


def floor_divide(x: Any, y: Any) -> Any:
    """As Python's: ``floor(x / y)`` is one too many where ``x / y`` was rounded up."""
    if not _is_floating(x, y):
        return NotImplemented if isinstance(x, Tensor) else torch.floor_divide(_tensor(x, y), y)
    rest = torch.fmod(_tensor(x, y), y)
    quotient = (x - rest) / y
    quotient = torch.where(
        (rest != 0) & ((rest < 0) != (_tensor(y, x) < 0)), quotient - 1, quotient
    )
    floored = torch.floor(quotient)
    floored = torch.where(quotient - floored > 0.5, floored + 1, floored)  # noqa: PLR2004
    return torch.where(_tensor(y, x) == 0, x / y, floored)


def remainder(x: Any, y: Any) -> Any:
    if not _is_floating(x, y):
        return NotImplemented if isinstance(x, Tensor) else torch.remainder(_tensor(x, y), y)
    rest = torch.fmod(_tensor(x, y), y)
    return torch.where((rest != 0) & ((rest < 0) != (_tensor(y, x) < 0)), rest + y, rest)


def _is_floating(x: Any, y: Any) -> bool:
    return bool(torch.result_type(x, y).is_floating_point)


def _tensor(value: Any, other: Any) -> Any:
    """`value` as a tensor that goes with `other`."""
    return (
        value
        if isinstance(value, Tensor)
        else torch.full_like(other, value, dtype=_kind(value, other))
    )


def _kind(value: Any, other: Tensor) -> torch.dtype:
    return torch.result_type(value, other)


def power(base: Any, exponent: Any) -> Any:
    """Of integers, by squaring, which also overflows as PyTorch does; exponents up to 63."""
    if torch.result_type(base, exponent).is_floating_point:
        return NotImplemented
    if isinstance(exponent, int):
        return _fixed_power(base, exponent)
    base, dtype = _tensor(base, exponent), torch.result_type(base, exponent)
    factor, exponent = base.to(dtype), exponent.to(dtype)
    result = torch.ones_like(exponent)
    for bit in range(min(6, torch.iinfo(dtype).bits - 1)):
        result = torch.where((exponent >> bit) % 2 == 1, result * factor, result)
        factor = factor * factor
    odd = exponent % 2 == 1
    ends = torch.where(base == 1, 1, torch.where(base == -1, torch.where(odd, -1, 1), 0))
    return torch.where(exponent < 0, ends.to(dtype), result)


def _fixed_power(base: Tensor, exponent: int) -> Tensor:
    result = torch.ones_like(base)
    for _ in range(exponent):
        result = result * base
    return result


def erfc(x: Tensor) -> Any:
    """Numerical Recipes, 2nd edition, ``erfcc``: relative error below 1.2e-7 everywhere."""
    if x.dtype is torch.float64:
        return NotImplemented
    z = x.float().abs()
    t = 1 / (1 + 0.5 * z)
    series = torch.zeros_like(t)
    for factor in _ERFC:
        series = series * t + factor
    tail = t * torch.exp(-z * z + series)
    return torch.where(x >= 0, tail, 2 - tail).to(x.dtype)


_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
    0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip


def signbit(x: Tensor) -> Tensor:
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.dtype.is_floating_point else x < 0


def copysign(x: Any, y: Any) -> Any:
    size = torch.abs(_tensor(x, y) if isinstance(y, Tensor) else x)
    if not isinstance(y, Tensor):
        return -size if math.copysign(1.0, y) < 0 else size
    return torch.where(torch.signbit(y), -size, size)


def isinf(x: Tensor) -> Tensor:
    return (
        torch.abs(x) == math.inf
        if x.dtype.is_floating_point
        else torch.zeros_like(x, dtype=torch.bool)
    )


def isfinite(x: Tensor) -> Tensor:
    return (
        torch.abs(x) < math.inf
        if x.dtype.is_floating_point
        else torch.ones_like(x, dtype=torch.bool)
    )


def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    larger = torch.maximum(x, y)
    total = larger + torch.log1p(torch.exp(torch.minimum(x, y) - larger))
    return torch.where((x == y) & torch.isinf(x), x, total)


def elu(x: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    if scale == 1 and input_scale == 1:
        return NotImplemented
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))


def expm1(x: Tensor) -> Any:
    """``exp(x) - 1`` loses all digits near 0, where four terms of the series are exact."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5))))
    return torch.where(torch.abs(x) < 0.03, series, torch.exp(x) - 1)  # noqa: PLR2004


def log1p(x: Tensor) -> Any:
    """``log(1 + x)`` loses the digits of a small x; Kahan's correction restores them."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    shifted = 1 + x
    rounded = shifted - 1
    exact = torch.log(shifted) * torch.where(rounded == 0, 1.0, x / rounded)
    return torch.where(rounded == 0, x, torch.where(shifted == math.inf, shifted, exact))


def clamp(x: Tensor, lower: Any = None, upper: Any = None) -> Any:
    if x.dtype.is_floating_point and torch.result_type(x, _first(lower, upper)) == x.dtype:
        return NotImplemented  # converted to relax.clip
    for bound, limited in ((lower, torch.maximum), (upper, torch.minimum)):
        if bound is not None:
            dtype = torch.result_type(x, bound)
            x = limited(x.to(dtype), _tensor(bound, x).to(dtype))
    return x


def clamp_by_tensors(x: Tensor, lower: Tensor | None = None, upper: Tensor | None = None) -> Tensor:
    if lower is not None:
        x = torch.maximum(x, lower)
    return x if upper is None else torch.minimum(x, upper)


def _first(lower: Any, upper: Any) -> Any:
    given = [bound for bound in (lower, upper) if bound is not None]
    return next((bound for bound in given if isinstance(bound, float)), given[0])


def any_of(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    axes = _axes(dim, x.dim())
    return (x != 0).to(torch.int32).amax(axes, keepdim) > 0


def all_of(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return (x != 0).to(torch.int32).amin(_axes(dim, x.dim()), keepdim) > 0


def _axes(dim: Any, rank: int) -> list[int]:
    if dim is None:
        return list(range(rank))
    return [dim] if isinstance(dim, int) else list(dim)


def var_mean(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    axes = _axes(dim, x.dim())
    variance = torch.var(
        x, axes, correction=1 if correction is None else correction, keepdim=keepdim
    )
    return variance, torch.mean(x, axes, keepdim)


def vector_norm(
    x: Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False,
    *, dtype: Any = None,
) -> Any:  # fmt: skip
    x = x if dtype is None else x.to(dtype)
    axes = _axes(dim, x.dim())
    size = torch.abs(x)
    if math.isinf(order):
        return size.amax(axes, keepdim) if order > 0 else size.amin(axes, keepdim)
    if order == 0:
        return (x != 0).to(x.dtype).sum(axes, keepdim)
    if order == 1:
        return size.sum(axes, keepdim)
    if order == 2:  # noqa: PLR2004
        return torch.sqrt((x * x).sum(axes, keepdim))
    return torch.pow(torch.pow(size, order).sum(axes, keepdim), 1 / order)


def kth_value(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, indices = torch.sort(x, dim)
    found = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return found if keepdim else tuple(part.squeeze(dim) for part in found)


def stable_sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    """TVM's sort is stable."""
    return aten.sort.default(x, dim, descending)


def search_sorted(
    boundaries: Tensor, x: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Any = None,
) -> Any:  # fmt: skip
    if boundaries.dim() != 1 or sorter is not None or not isinstance(x, Tensor):
        return NotImplemented
    return torch.bucketize(x, boundaries, out_int32=out_int32, right=right or side == "right")


def avg_pool(
    x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    if divisor_override is None or ceil_mode:
        return NotImplemented
    spatial = len(kernel)
    pads = [pad for pad in reversed(_each(padding, spatial)) for _ in range(2)]
    pool = {2: torch.nn.functional.avg_pool2d, 3: torch.nn.functional.avg_pool3d}[spatial]
    mean = pool(torch.nn.functional.pad(x, pads), kernel, stride or kernel)
    return mean * (math.prod(kernel) / divisor_override)


def _each(value: Any, count: int) -> list[int]:
    if isinstance(value, int):
        return [value] * count
    return list(value) * (count if len(value) == 1 else 1)


def adaptive_max_pool(x: Tensor, size: Any) -> Any:
    """The windows' elements are gathered; the shorter windows repeat their last one."""
    rows, columns = (_windows(x.shape[axis], out) for axis, out in zip((-2, -1), size, strict=True))
    flat = rows[:, None, :, None] * x.shape[-1] + columns[None, :, None, :]
    flat = flat.reshape(*size, -1)
    elements = torch.index_select(x.flatten(-2), -1, flat.reshape(-1))
    elements = elements.reshape(*x.shape[:-2], *flat.shape)
    best = elements.argmax(-1, keepdim=True)
    places = torch.gather(flat.expand(elements.shape), -1, best)
    return elements.amax(-1), places.squeeze(-1)


def _windows(size: int, count: int) -> Tensor:
    """Positions that each of `count` windows over `size` covers, as PyTorch divides them."""
    start = torch.arange(count) * size // count
    end = ((torch.arange(count) + 1) * size + count - 1) // count
    longest = max(-(-(i + 1) * size // count) - i * size // count for i in range(count))
    return torch.minimum(start[:, None] + torch.arange(longest), end[:, None] - 1)


def add_summed_product(
    x: Tensor, first: Tensor, second: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    product = torch.bmm(first, second).sum(0) * alpha
    return product if beta == 0 else x * beta + product


# TVM's normalizations are for float32 and float16; halves are computed in float32.


def _standardized(x: Tensor, axes: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    scale = torch.rsqrt(variance + eps)
    return (x - mean) * scale, mean, scale


def _affine(x: Tensor, weight: Any, bias: Any, shape: list[int]) -> Tensor:
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def layer_norm(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    if x.dtype is not torch.float64:
        return NotImplemented
    y, mean, scale = _standardized(x, list(range(-len(shape), 0)), eps)
    return _affine(y, weight, bias, list(shape)), mean, scale


def batch_norm_of_the_batch(
    x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    is_static = all(isinstance(size, int) for size in x.shape)
    if not training or (is_static and x.dtype is not torch.float64):
        return NotImplemented
    y, mean, scale = _standardized(x, [0, *range(2, x.dim())], eps)
    y = _affine(y, weight, bias, [1, -1, *[1] * (x.dim() - 2)])
    return y, mean.flatten(), scale.flatten()


def group_norm(
    x: Tensor, weight: Any, bias: Any, batch: int, channels: int, size: int, groups: int, eps: float
) -> Any:
    if x.dtype is torch.float64:
        parts = x.reshape(batch, groups, -1)
        y, mean, scale = _standardized(parts, [-1], eps)
        y = _affine(y.reshape(x.shape), weight, bias, [1, channels, *[1] * (x.dim() - 2)])
        return y, mean.squeeze(-1), scale.squeeze(-1)
    if weight is not None and bias is not None:
        return NotImplemented
    weight = x.new_ones(channels) if weight is None else weight
    bias = x.new_zeros(channels) if bias is None else bias
    return aten.native_group_norm(x, weight, bias, batch, channels, size, groups, eps)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """PyTorch's own looks for rows that are masked as a whole even where there is no mask."""
    if dropout != 0:
        return NotImplemented
    if enable_gqa:
        k, v = (part.repeat_interleave(q.shape[-3] // k.shape[-3], -3) for part in (k, v))
    scores = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.transpose(-2, -1)
    if is_causal:
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        return torch.softmax(torch.where(seen, scores, -math.inf), -1) @ v
    if mask is None:
        return torch.softmax(scores, -1) @ v
    is_bool = mask.dtype is torch.bool
    scores = torch.where(mask, scores, -math.inf) if is_bool else scores + mask
    return aten._safe_softmax(scores, -1) @ v  # noqa: SLF001 - PyTorch's name


def trilinear(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    expand1: Any,
    expand2: Any,
    expand3: Any,
    summed: Any,
    _: int = 1,
) -> Tensor:
    factors = []
    for factor, axes in ((x, expand1), (y, expand2), (z, expand3)):
        for axis in sorted(axes):
            factor = factor.unsqueeze(axis)  # noqa: PLW2901 - one more axis each time
        factors.append(factor)
    product = factors[0] * factors[1] * factors[2]
    return product.sum(list(summed)) if summed else product


def cdist(x: Tensor, y: Tensor, order: float, _: int | None = None) -> Any:
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), order, dim=-1)


def unfold(x: Tensor, dim: int, size: int, step: int) -> Any:
    if x.dim() == 0:
        return NotImplemented
    dim %= x.dim()
    count = (x.shape[dim] - size) // step + 1
    starts = torch.arange(count, device=x.device) * step
    index = starts.unsqueeze(1) + torch.arange(size, device=x.device)
    windows = torch.index_select(x, dim, index.reshape(-1)).unflatten(dim, (count, size))
    return windows.movedim(dim + 1, -1)


def repeat(x: Tensor, repeats: Any) -> Any:
    """As often as an open dimension is long; TVM's tile takes numbers alone."""
    if all(isinstance(times, int) for times in repeats):
        return NotImplemented
    x = x.reshape([*[1] * (len(repeats) - x.dim()), *x.shape])
    for axis, times in enumerate(repeats):
        if not isinstance(times, int) or times != 1:
            shape = [*x.shape[:axis], times, *x.shape[axis:]]
            x = x.unsqueeze(axis).expand(shape).flatten(axis, axis + 1)
    return x


def as_strided(x: Tensor, size: Any, stride: Any, offset: int | None = None) -> Any:
    if not x.is_contiguous() or not all(isinstance(n, int) for n in (*x.shape, *size, *stride)):
        return NotImplemented
    index = torch.full([1] * len(size), offset or 0, dtype=torch.int64)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        steps = torch.arange(length) * step
        index = index + steps.reshape([-1 if i == axis else 1 for i in range(len(size))])
    return torch.index_select(x.reshape(-1), 0, index.reshape(-1)).reshape(size)


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    mask = mask.broadcast_to(x.shape)
    order = torch.cumsum(mask.reshape(-1).to(torch.int64), 0) - 1
    picked = torch.index_select(source.reshape(-1), 0, torch.clamp(order, min=0))
    return torch.where(mask, picked.reshape(x.shape), x)


def index_put_by_mask(x: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Any:
    """A mask with one value for all its elements; with more, their number is not known."""
    masks = [index for index in indices if index is not None and index.dtype is torch.bool]
    if len(indices) != 1 or len(masks) != 1 or values.numel() != 1:
        return NotImplemented
    mask = masks[0].reshape([*masks[0].shape, *[1] * (x.dim() - masks[0].dim())])
    new = x + values if accumulate else values
    return torch.where(mask, new.to(x.dtype), x)


def resize_by_torch(fallback: Decomposition) -> Decomposition:
    """Resizing that is exactly by ``output size / input size`` has a converter; `fallback` else.

    With a scale factor PyTorch does not compute coordinates from the sizes but from the factor,
    which differs where the product was rounded. TVM computes coordinates in float32.
    """

    def resize(x: Tensor, size: Any, *rest: Any) -> Any:
        scales = rest[-1]
        spatial = x.shape[2:]
        is_exact = size is not None or all(
            n * factor == int(n * factor) for n, factor in zip(spatial, scales, strict=True)
        )
        if is_exact and x.dtype is not torch.float64:
            return NotImplemented
        return fallback(x, size, *rest)

    return resize


def nearest(x: Tensor, size: Any, scales: Any) -> Any:
    """Whole multiples have a converter; others are two gathers."""
    spatial = x.shape[2:]
    size = size or [int(n * factor) for n, factor in zip(spatial, scales, strict=True)]
    if len(spatial) == 2 and all(out % n == 0 for out, n in zip(size, spatial, strict=True)):  # noqa: PLR2004
        return NotImplemented
    for axis, (out, n) in enumerate(zip(size, spatial, strict=True)):
        factor = n / out if scales is None else 1 / scales[axis]
        index = torch.arange(out, dtype=torch.float32) * factor
        x = torch.index_select(x, axis + 2, torch.clamp(index.to(torch.int64), max=n - 1))
    return x


def _aside_of_nan(choose: Decomposition) -> Decomposition:
    """`choose` of two tensors, where both are numbers; else the one that is."""

    def chosen(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, choose(x, y)))

    return chosen


def _extreme(kind: str) -> Decomposition:
    def found(x: Tensor, dim: int, keepdim: bool = False) -> Any:
        return tuple(getattr(x, prefix + kind)(dim, keepdim) for prefix in ("a", "arg"))

    return found


def _overload(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), aten)


# Functions that are called as the op that they stand for.
_BY_NAME = (
    erfc, signbit, isinf, isfinite, logaddexp, elu, expm1, log1p, unfold, repeat, as_strided,
    masked_scatter,
)  # fmt: skip
_TABLE: tuple[tuple[Decomposition, str], ...] = (
    *((function, f"{function.__name__}.default") for function in _BY_NAME),
    (add, "add.Tensor add.Scalar"),
    (sub, "sub.Tensor sub.Scalar"),
    (mul, "mul.Tensor mul.Scalar"),
    (divide, "div.Tensor_mode div.Scalar_mode"),
    (floor_divide, "floor_divide.default floor_divide.Scalar"),
    (remainder, "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor"),
    (power, "pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar"),
    (torch.bitwise_left_shift, "__lshift__.Tensor __lshift__.Scalar"),
    (torch.bitwise_right_shift, "__rshift__.Tensor __rshift__.Scalar"),
    (lambda x: torch.pow(2.0, x), "exp2.default"),
    (copysign, "copysign.Tensor copysign.Scalar"),
    (lambda x, y: torch.sqrt(x * x + y * y), "hypot.default"),
    (_aside_of_nan(torch.maximum), "fmax.default"),
    (_aside_of_nan(torch.minimum), "fmin.default"),
    (clamp, "clamp.default"),
    (clamp_by_tensors, "clamp.Tensor"),
    (any_of, "any.default any.dim any.dims"),
    (all_of, "all.default all.dim all.dims"),
    (var_mean, "var_mean.correction"),
    (vector_norm, "linalg_vector_norm.default"),
    (_extreme("max"), "max.dim"),
    (_extreme("min"), "min.dim"),
    (kth_value, "kthvalue.default"),
    (stable_sort, "sort.stable"),
    (search_sorted, "searchsorted.Tensor"),
    (avg_pool, "avg_pool2d.default avg_pool3d.default"),
    (adaptive_max_pool, "adaptive_max_pool2d.default"),
    (add_summed_product, "addbmm.default"),
    (group_norm, "native_group_norm.default"),
    (layer_norm, "native_layer_norm.default"),
    (batch_norm_of_the_batch, "_native_batch_norm_legit.no_stats"),
    (attention, "scaled_dot_product_attention.default"),
    (trilinear, "_trilinear.default"),
    (cdist, "_cdist_forward.default"),
    (index_put_by_mask, "index_put.default"),
    (lambda x, *places: torch.scatter_reduce(x, *places, "sum"), "scatter_add.default"),
    (nearest, "upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec"),
    *(
        (resize_by_torch(further), f"{overload.overloadpacket.__name__}.vec")
        for overload, further in get_decompositions(
            [aten.upsample_bilinear2d.vec, aten.upsample_bicubic2d.vec]
        ).items()
    ),
)
OWN = {_overload(name): function for function, names in _TABLE for name in names.split()}
