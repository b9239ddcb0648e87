"""Why upstream's host code is not used: what it generates for some of what the kit takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tvm.contrib.cutlass.build import _get_cutlass_path
from tvm.contrib.cutlass.conv2d_operation import instantiate_conv2d_template
from tvm.contrib.cutlass.gemm_operation import instantiate_gemm_template

STRIDE_0 = "cutlass::layout::TensorNHWC::Stride(0)"


def conv_code(op_type: str, **attrs: Any) -> str:
    """Of a convolution of 1x8x8x4 with stride 2 to 1x4x4x6."""
    sizes = {"N": "1", "H": "8", "W": "8", "C": "4", "K": "6", "R": "3", "S": "3", "P": "4"}
    return instantiate_conv2d_template(
        {**sizes, "Q": "4", "op_type": op_type, "cutlass_op_name": "kernel", **attrs}
    )


def gemm_code(op_type: str, **attrs: Any) -> str:
    return instantiate_gemm_template({"op_type": op_type, "ldc": "N", **attrs})


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


def test_the_workspace_is_of_a_class_whose_header_is_not_in_the_wheel() -> None:
    assert "cutlass::device_memory::allocation" in gemm_code("cutlass.matmul")
    assert not list(Path(_get_cutlass_path()).rglob("device_memory.h"))


def test_the_stream_is_that_of_an_argument_that_is_not_filled_in() -> None:
    assert "${A_arg}->device" in gemm_code("cutlass.matmul")
