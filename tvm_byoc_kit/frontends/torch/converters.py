"""The kit's converters: ops that TVM's importer lacks, or converts to something else.

What they give is bound to a variable where it is none yet.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_byoc_kit.frontends.torch.indexing import convert_index, convert_index_put

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

    Converter = Callable[[ExportedProgramImporter, fx.Node], Any]


@functools.cache
def supported_ops() -> frozenset[str]:
    """Names, such as ``add.Tensor``, of the ops that have a converter here or in TVM."""
    return frozenset(ExportedProgramImporter().convert_map) - REFUSED | frozenset(CONVERTERS)


def _arguments(node: fx.Node) -> dict[str, Any]:
    """All arguments of `node` by the names in the op's schema, defaults included."""
    schema = node.target._schema  # noqa: SLF001 - there is no other way to it
    named = {argument.name: argument.default_value for argument in schema.arguments}
    named.update(zip(named, node.args, strict=False))
    named.update(node.kwargs)
    return named


def _values(importer: Any, node: fx.Node) -> dict[str, Any]:
    """Like `_arguments`, with nodes replaced by what they were converted to."""
    return {name: importer._retrieve_args(value) for name, value in _arguments(node).items()}  # noqa: SLF001


def _accumulator(importer: Any, node: fx.Node) -> str:
    """The dtype in which products are summed: float32 for the halves, else the result's own."""
    dtype = importer._convert_data_type(node.meta["val"].dtype)  # noqa: SLF001
    return "float32" if dtype in ("float16", "bfloat16") else str(dtype)


def _scaled(importer: Any, value: Any, factor: Any) -> Any:
    if factor == 1:
        return value
    factor = relax.const(factor, value.ty.dtype.dtype)
    return importer.block_builder.emit(relax.op.multiply(value, factor))


def _cast(importer: Any, value: Any, dtype: str) -> Any:
    if str(value.ty.dtype.dtype) == dtype:
        return value
    return importer.block_builder.emit(relax.op.astype(value, dtype))


def matmul(importer: Any, node: fx.Node) -> Any:
    first, second = importer.retrieve_args(node)[:2]
    return relax.op.matmul(first, second, out_dtype=_accumulator(importer, node))


def add_product(importer: Any, node: fx.Node) -> Any:
    """``beta * self + alpha * (first @ second)``; `self` is not read where beta is 0."""
    addend, first, second = importer.retrieve_args(node)[:3]
    alpha, beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
    dtype = _accumulator(importer, node)
    product = importer.block_builder.emit(relax.op.matmul(first, second, out_dtype=dtype))
    product = _scaled(importer, product, alpha)
    if beta == 0:
        return product
    addend = _scaled(importer, _cast(importer, addend, dtype), beta)
    return relax.op.add(product, addend)


_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_CONVOLUTIONS = {
    (1, False): relax.op.nn.conv1d,
    (2, False): relax.op.nn.conv2d,
    (3, False): relax.op.nn.conv3d,
    (1, True): relax.op.nn.conv1d_transpose,
    (2, True): relax.op.nn.conv2d_transpose,
    (3, True): relax.op.nn.conv3d_transpose,
}


def convolution(importer: Any, node: fx.Node) -> Any:
    given = _values(importer, node)
    rank = len(given["stride"])
    dtype = _accumulator(importer, node)
    options = {"output_padding": given["output_padding"]} if given["transposed"] else {}
    result = importer.block_builder.emit(
        _CONVOLUTIONS[rank, given["transposed"]](
            given["input"],
            given["weight"],
            strides=tuple(given["stride"]),
            padding=tuple(given["padding"]),
            dilation=tuple(given["dilation"]),
            groups=given["groups"],
            data_layout=f"NC{_SPATIAL[rank]}",
            kernel_layout=f"{'IO' if given['transposed'] else 'OI'}{_SPATIAL[rank]}",
            out_dtype=dtype,
            **options,
        )
    )
    if given["bias"] is None:
        return result
    bias = _cast(importer, given["bias"], dtype)
    bias = importer.block_builder.emit(relax.op.reshape(bias, (1, -1, *[1] * rank)))
    return relax.op.add(result, bias)


def extreme(reduce: Callable[..., Any], bound: float) -> Converter:
    """TVM's search starts from the farthest finite number, which is no `bound`.

    A second reduction puts right what has nothing but that infinity, which is done where an
    infinite constant is among what the values are computed from.
    """

    def convert(importer: Any, node: fx.Node) -> Any:
        emit = importer.block_builder.emit
        given = _values(importer, node)
        x, axes, keepdim = given["self"], list(given["dim"]) or None, given["keepdim"]
        found = emit(reduce(x, axes, keepdim))
        is_floating = node.meta["val"].is_floating_point()
        if not is_floating or not _meets_infinity(node, importer.infinite):
            return found
        limit = relax.const(bound, x.ty.dtype.dtype)
        others = emit(relax.op.astype(emit(relax.op.not_equal(x, limit)), "int32"))
        is_other = emit(relax.op.astype(emit(relax.op.max(others, axes, keepdim)), "bool"))
        return relax.op.where(is_other, found, limit)

    return convert


def _meets_infinity(node: fx.Node, infinite: frozenset[str]) -> bool:
    """Whether an infinite number, or a constant tensor that has one, is behind `node`."""
    pending, seen = [node], set()
    while pending:
        node = pending.pop()
        if node.name in infinite or any(
            isinstance(argument, float) and math.isinf(argument) for argument in node.args
        ):
            return True
        seen.add(node)
        pending += [argument for argument in node.all_input_nodes if argument not in seen]
    return False


def extreme_position(find: Callable[..., Any]) -> Converter:
    """TVM's search starts from the least finite number and gives -1 where nothing exceeds it."""

    def convert(importer: Any, node: fx.Node) -> Any:
        given = _values(importer, node)
        found = importer.block_builder.emit(find(given["self"], given["dim"], given["keepdim"]))
        return relax.op.maximum(found, relax.const(0, "int64"))

    return convert


def product_of_axis(importer: Any, node: fx.Node) -> Any:
    given = _values(importer, node)
    wanted = importer._convert_data_type(node.meta["val"].dtype)  # noqa: SLF001
    x = _cast(importer, given["self"], wanted)
    return relax.op.prod(x, given["dim"], given["keepdim"])


def scan(op: Callable[..., Any]) -> Converter:
    def convert(importer: Any, node: fx.Node) -> Any:
        given = _values(importer, node)
        return op(given["self"], given["dim"])

    return convert


def shift(op: Callable[..., Any]) -> Converter:
    def convert(importer: Any, node: fx.Node) -> Any:
        first, second = importer.retrieve_args(node)
        if isinstance(second, int):
            second = relax.const(second, first.ty.dtype.dtype)
        elif isinstance(first, int):
            first = relax.const(first, second.ty.dtype.dtype)
        return op(first, second)

    return convert


# PyTorch's names of reductions, and whether TVM's take the element scattered to into account.
_SCATTERED = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def scatter_reduce(importer: Any, node: fx.Node) -> Any:
    given = _values(importer, node)
    if given["reduce"] not in _SCATTERED or not given["include_self"]:
        raise NotImplementedError(
            f"reduce={given['reduce']!r} with include_self={given['include_self']}; supported: "
            f"{', '.join(_SCATTERED)} with include_self=True"
        )
    return relax.op.scatter_elements(
        given["self"],
        given["index"],
        _like_index(importer, given["src"], given["index"]),
        axis=given["dim"],
        reduction=_SCATTERED[given["reduce"]],
    )


def scatter(importer: Any, node: fx.Node) -> Any:
    given = _values(importer, node)
    source = _like_index(importer, given["src"], given["index"])
    return relax.op.scatter_elements(given["self"], given["index"], source, axis=given["dim"])


def _like_index(importer: Any, source: Any, index: Any) -> Any:
    """`source` cropped to the shape of `index`, all that PyTorch reads of it."""
    sizes = list(index.ty.shape)
    axes = list(range(len(sizes)))
    if all(str(a) == str(b) for a, b in zip(source.ty.shape, sizes, strict=True)):
        return source
    cropped = relax.op.strided_slice(source, axes, [0] * len(sizes), sizes)
    return importer.block_builder.emit(cropped)


def view(importer: Any, node: fx.Node) -> Any:
    """TVM's compares an open dimension with another as if the answer were known."""
    given = _values(importer, node)
    x, sizes = given["self"], given["size"]
    if list(map(str, x.ty.shape)) == list(map(str, sizes)):
        return x
    return importer._emit_torch_reshape(x, sizes)  # noqa: SLF001


def nearest(importer: Any, node: fx.Node) -> Any:
    """Whole multiples alone get here; PyTorch takes ``floor(i * n_in / n_out)``."""
    x = importer.env[node.args[0]]
    size = tuple(int(n) for n in node.meta["val"].shape[2:])
    return relax.op.image.resize2d(
        x,
        size,
        layout="NCHW",
        method="nearest_neighbor",
        coordinate_transformation_mode="asymmetric",
        rounding_method="floor",
    )


_SAMPLING = {0: "bilinear", 1: "nearest", 2: "bicubic"}
_BORDERS = {0: "zeros", 1: "border", 2: "reflection"}


def grid_sample(importer: Any, node: fx.Node) -> Any:
    given = _values(importer, node)
    grid = importer.block_builder.emit(relax.op.permute_dims(given["grid"], [0, 3, 1, 2]))
    return relax.op.image.grid_sample(
        given["input"],
        grid,
        method=_SAMPLING[given["interpolation_mode"]],
        layout="NCHW",
        padding_mode=_BORDERS[given["padding_mode"]],
        align_corners=given["align_corners"],
    )


def sort(importer: Any, node: fx.Node) -> Any:
    given = _values(importer, node)
    x, axis = given["self"], given["dim"]
    indices = importer.block_builder.emit(
        relax.op.argsort(x, axis, given["descending"], dtype="int64")
    )
    values = importer.block_builder.emit(relax.op.gather_elements(x, indices, axis=axis))
    return relax.Tuple([values, indices])


CONVERTERS: dict[str, Converter] = {
    "matmul.default": matmul,
    "mm.default": matmul,
    "bmm.default": matmul,
    "addmm.default": add_product,
    "baddbmm.default": add_product,
    "convolution.default": convolution,
    "amax.default": extreme(relax.op.max, -math.inf),
    "amin.default": extreme(relax.op.min, math.inf),
    "argmax.default": extreme_position(relax.op.argmax),
    "argmin.default": extreme_position(relax.op.argmin),
    "prod.dim_int": product_of_axis,
    "cumsum.default": scan(relax.op.cumsum),
    "cumprod.default": scan(relax.op.cumprod),
    "bitwise_left_shift.Tensor": shift(relax.op.left_shift),
    "bitwise_left_shift.Tensor_Scalar": shift(relax.op.left_shift),
    "bitwise_right_shift.Tensor": shift(relax.op.right_shift),
    "bitwise_right_shift.Tensor_Scalar": shift(relax.op.right_shift),
    "scatter.src": scatter,
    "scatter_reduce.two": scatter_reduce,
    "sort.default": sort,
    "view.default": view,
    "upsample_nearest2d.vec": nearest,
    "grid_sampler_2d.default": grid_sample,
    "index.Tensor": convert_index,
    "index_put.default": convert_index_put,
}
# TVM's converters of these give something else than PyTorch, and nothing here replaces them.
REFUSED = frozenset(
    {
        "_upsample_bilinear2d_aa.default",  # without the antialiasing
        "_native_batch_norm_legit_functional.default",  # training
        "lstm.input",  # without the last state
        "gru.input",
        "masked_select.default",  # a shape that no executable can state
    }
)
