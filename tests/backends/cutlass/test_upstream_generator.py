"""Why CUTLASS's predicates are stricter than upstream's checks: what upstream generates then."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tvm.contrib.cutlass.build import _get_cutlass_path
from tvm.contrib.cutlass.conv2d_operation import instantiate_conv2d_template
from tvm.contrib.cutlass.gemm_operation import instantiate_gemm_template
from tvm.contrib.cutlass.gen_conv2d import CutlassConv2DProfiler
from tvm.contrib.cutlass.gen_gemm import enumerate_gemm_operators
from tvm.contrib.cutlass.gen_tensor_op import GENERATOR_FUNC_TABLE
from tvm.contrib.cutlass.layer_norm_operation import instantiate_layer_norm_template
from tvm.contrib.cutlass.library import ConvKind, DataType

STRIDE_0 = "cutlass::layout::TensorNHWC::Stride(0)"


def gemm_kernels(result: str, left: str, right: str) -> list[dict[str, Any]]:
    generate = GENERATOR_FUNC_TABLE[80]
    return generate(result, left, right, partial(enumerate_gemm_operators), lambda _: True)


def conv_code(op_type: str, **attrs: Any) -> str:
    """Of a convolution of 1x8x8x4 with stride 2 to 1x4x4x6."""
    sizes = {"N": "1", "H": "8", "W": "8", "C": "4", "K": "6", "R": "3", "S": "3", "P": "4"}
    return instantiate_conv2d_template(
        {**sizes, "Q": "4", "op_type": op_type, "cutlass_op_name": "kernel", **attrs}
    )


def gemm_code(op_type: str, **attrs: Any) -> str:
    return instantiate_gemm_template({"op_type": op_type, "ldc": "N", **attrs})


def test_integer_products_have_kernels_to_int32_only() -> None:
    assert gemm_kernels("int32", "int8", "uint8")
    with pytest.raises(AssertionError):
        gemm_kernels("int8", "int8", "uint8")


def test_float32_products_are_float32_whatever_is_asked_for() -> None:
    kernels = gemm_kernels("float16", "float32", "float32")
    assert {kernel["data_type"][2] for kernel in kernels} == {DataType.f32}


def test_integer_convolutions_have_no_kernel(tmp_path: Path) -> None:
    profiler = CutlassConv2DProfiler(80, _get_cutlass_path(), str(tmp_path))
    shapes = (1, 8, 8, 4), (6, 3, 3, 4)
    window = ((0, 0), (1, 1), (1, 1))
    with pytest.raises(ValueError, match="Unsupported data type: int32"):
        profiler.select_op(
            *shapes, *window, "int32", "int8", "int8", True, ConvKind.Fprop, None, [1]
        )


def test_a_bias_of_a_convolution_is_one_vector_whatever_its_shape() -> None:
    code = conv_code("cutlass.conv2d_bias", bias_arg="bias")
    assert f"tensor_c{{static_cast<ElementOutput*>(ptr_c_bias), {STRIDE_0}}}" in code


@pytest.mark.parametrize(
    ("residual", "steps"), [((1, 8, 8, 6), "layout_C"), ((1, 4, 4, 6), STRIDE_0)]
)
def test_a_residual_of_a_convolution_is_compared_with_the_size_of_the_data(
    residual: tuple[int, ...], steps: str
) -> None:
    code = conv_code(
        "cutlass.conv2d_bias_residual_add",
        bias_arg="bias",
        residual_arg="residual",
        residual_shape=residual,
    )
    assert f"tensor_c{{static_cast<ElementOutput*>(ptr_residual), {steps}}}" in code


def test_a_residual_of_a_convolution_needs_four_dimensions() -> None:
    with pytest.raises(IndexError):
        conv_code("cutlass.conv2d_bias_residual_add", residual_shape=(6,))


def test_groups_are_in_no_problem_size() -> None:
    code = conv_code("cutlass.conv2d", groups="2")
    (line,) = [line for line in code.splitlines() if "Conv2dProblemSize" in line]
    assert "group" not in line


def test_a_bias_of_a_batch_stays_where_it_is() -> None:
    batched = {"batch": "3", "batch_stride_C": "M * N"}
    code = gemm_code("cutlass.matmul_bias", bias_arg="bias", **batched)
    (line,) = [line for line in code.splitlines() if "ptr_bias)," in line]
    assert line.rstrip().endswith("0,")


def test_a_residual_of_a_matmul_is_read_as_a_matrix_and_its_bias_as_a_vector() -> None:
    code = gemm_code("cutlass.matmul_bias_residual_add", bias_arg="bias", residual_arg="residual")
    arguments = code[code.index("static_cast<ElementOutput*>(ptr_residual)") :]
    assert "residual->ndim" not in arguments
    assert "0, // ldv, the stride for bias" in arguments


def test_layer_norm_has_no_epsilon() -> None:
    attrs = {"data_type": "float", "M": "2", "N": "8", "input": "x", "gamma": "g", "beta": "b"}
    code = instantiate_layer_norm_template({**attrs, "layer_norm_eps": "1e-6"})
    assert "layernorm(size, _output, _input, _gamma, _beta, stream)" in code
    assert "1e-6" not in code
