"""Batch normalization at inference keeps PyTorch's numbers, and goes where it can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_byoc_kit as byoc
from tvm_byoc_kit.batch_norm_folding import fold_batch_norm
from tvm_byoc_kit.prepare_report import count_ops

op = relax.op


def trained(module: nn.Module) -> nn.Module:
    """With statistics and coefficients that are not those of a fresh layer."""
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            if part.affine:
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias)
    return module.eval()


def prepared(module: nn.Module, x: torch.Tensor) -> byoc.ImportedModel:
    exported = torch.export.export(module, (x,))
    return byoc.prepare(from_exported_program(exported, unwrap_unit_return_tuple=True))


FOLDED = {
    "conv1d": ([nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6)], (2, 4, 9)),
    "conv2d": ([nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)], (2, 4, 7, 7)),
    "no bias": ([nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6)], (2, 4, 7, 7)),
    "not affine": ([nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, affine=False)], (2, 4, 7, 7)),
    "groups": ([nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)], (2, 4, 7, 7)),
    "depthwise": ([nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4)], (2, 4, 7, 7)),
    "conv3d": ([nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3)], (1, 2, 4, 4, 4)),
    "transposed": ([nn.ConvTranspose2d(4, 6, 3, 2), nn.BatchNorm2d(6)], (2, 4, 5, 5)),
    "transposed, groups": (
        [nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)],
        (2, 4, 5, 5),
    ),
    "transposed, 1-D": ([nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d(6)], (2, 4, 5)),
    "linear": ([nn.Linear(4, 6), nn.BatchNorm1d(6)], (3, 4)),
}


@pytest.mark.parametrize("name", FOLDED)
def test_it_goes_into_the_weights_before_it(name: str) -> None:
    layers, shape = FOLDED[name]
    module, x = trained(nn.Sequential(*layers)), torch.randn(shape)
    model = prepared(module, x)
    found = count_ops(model.mod)
    assert found.pop("relax.add") == 1
    assert sum(found.values()) == 1, found
    with torch.no_grad():
        expected = module(x).numpy()
    # The products are rounded once more or less than in PyTorch: a few float32 units.
    result = byoc.compile(model, "llvm")(x.numpy())
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


class Shared(nn.Module):
    """The convolution is read by its batch normalization and by the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.norm(y) + y


KEPT_APART = {
    "first": (nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3)), (2, 4, 7, 7)),
    "after an activation": (nn.Sequential(nn.ReLU(), nn.BatchNorm1d(4)), (2, 4, 7)),
    "shared": (Shared(), (1, 4, 5, 5)),
}


@pytest.mark.parametrize("name", KEPT_APART)
def test_elsewhere_it_becomes_a_multiplication_and_an_addition(name: str) -> None:
    module, shape = KEPT_APART[name]
    module, x = trained(module), torch.randn(shape)
    model = prepared(module, x)
    found = count_ops(model.mod)
    assert found["relax.multiply"] == 1
    assert "relax.nn.batch_norm" not in found
    with torch.no_grad():
        expected = module(x).numpy()
    result = byoc.compile(model, "llvm")(x.numpy())
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def normalized(x: Any, *parameters: Any, **choices: Any) -> Any:
    choices = {"axis": 1, "epsilon": 1e-3, "training": False} | choices
    return relax.TupleGetItem(op.nn.batch_norm(x, *parameters, **choices), 0)


RNG = np.random.default_rng(0)
PARAMETERS = [
    RNG.uniform(0.5, 1.5, 3).astype("float32"),
    RNG.standard_normal(3).astype("float32"),
    RNG.standard_normal(3).astype("float32"),
    RNG.uniform(0.5, 2, 3).astype("float32"),
]
CONSTANTS = [relax.const(values) for values in PARAMETERS]


def by_numpy(x: np.ndarray, scale: bool = True, center: bool = True) -> np.ndarray:
    """Along the last axis."""
    gamma, beta, mean, variance = PARAMETERS
    y = (x - mean) / np.sqrt(variance + 1e-3)
    y = y * gamma if scale else y
    return y + beta if center else y


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("constant", [True, False])
def test_scale_center_and_axis_count(
    make_module: Any, scale: bool, center: bool, constant: bool
) -> None:
    shapes = {"x": ((2, 4, 3), "float32")}
    if not constant:
        shapes |= {f"p{i}": ((3,), "float32") for i in range(4)}

    def body(x: Any, *parameters: Any) -> Any:
        given = parameters or CONSTANTS
        return normalized(x, *given, axis=-1, scale=scale, center=center)

    model = byoc.prepare(make_module(shapes, body))
    assert "relax.nn.batch_norm" not in count_ops(model.mod)
    x = RNG.standard_normal((2, 4, 3)).astype("float32")
    result = byoc.compile(model, "llvm")(x, *([] if constant else PARAMETERS))
    np.testing.assert_allclose(result, by_numpy(x, scale, center), rtol=1e-5, atol=1e-5)


def test_nhwc_weights_and_data_are_scaled_along_their_own_axes(make_module: Any) -> None:
    weight = RNG.standard_normal((3, 2, 2, 4)).astype("float32")  # OHWI

    def body(x: Any) -> Any:
        y = op.nn.conv2d(x, relax.const(weight), data_layout="NHWC", kernel_layout="OHWI")
        return normalized(y, *CONSTANTS, axis=3)

    model = byoc.prepare(make_module({"x": ((1, 5, 5, 4), "float32")}, body))
    assert count_ops(model.mod) == {"relax.nn.conv2d": 1, "relax.add": 1}
    x = RNG.standard_normal((1, 5, 5, 4)).astype("float32")
    conv = torch.nn.functional.conv2d(
        torch.from_numpy(x.transpose(0, 3, 1, 2)), torch.from_numpy(weight.transpose(0, 3, 1, 2))
    )
    expected = by_numpy(conv.numpy().transpose(0, 2, 3, 1))
    result = byoc.compile(model, "llvm")(x)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_an_axis_that_is_not_the_convolutions_is_not_folded(make_module: Any) -> None:
    weight = relax.const(np.ones((3, 4, 3, 3), "float32"))

    def body(x: Any) -> Any:
        return normalized(op.nn.conv2d(x, weight), *CONSTANTS, axis=2)

    mod = make_module({"x": ((1, 4, 5, 5), "float32")}, body)
    found = count_ops(byoc.prepare(mod).mod)
    assert found == {"relax.nn.conv2d": 1, "relax.multiply": 1, "relax.add": 1}


def test_an_addend_that_is_no_bias_is_not_folded(make_module: Any) -> None:
    weight = relax.const(np.ones((3, 4, 3, 3), "float32"))
    feature_map = relax.const(np.ones((1, 3, 3, 3), "float32"))

    def body(x: Any) -> Any:
        return normalized(op.add(op.nn.conv2d(x, weight), feature_map), *CONSTANTS)

    mod = make_module({"x": ((1, 4, 5, 5), "float32")}, body)
    assert count_ops(byoc.prepare(mod).mod)["relax.multiply"] == 1


def test_in_training_mode_it_is_left_alone_and_reported(make_module: Any) -> None:
    mod = make_module(
        {"x": ((2, 3, 4), "float32")}, lambda x: normalized(x, *CONSTANTS, training=True)
    )
    model = byoc.prepare(mod)
    assert count_ops(model.mod) == {"relax.nn.batch_norm": 1}
    assert model.report is not None
    notes = [note for item in model.report.passes for note in item.notes]
    assert notes == ["batch_norm in training mode stays"]


def test_it_stays_whole_for_a_backend_that_takes_it(make_module: Any) -> None:
    """The example NPU's table has batch_norm."""
    mod = make_module({"x": ((2, 3, 4, 4), "float32")}, lambda x: normalized(x, *CONSTANTS))
    assert byoc.partition(mod, "example_npu").coverage.offloaded == 1
    kept = count_ops(byoc.prepare(mod, "example_npu").mod)
    assert kept == {"relax.nn.batch_norm": 1}
    assert "relax.nn.batch_norm" not in count_ops(byoc.prepare(mod, "tensorrt").mod)


def test_its_moving_statistics_are_given_unchanged(make_module: Any) -> None:
    def body(x: Any) -> Any:
        whole = op.nn.batch_norm(x, *CONSTANTS, axis=1, training=False)
        return [relax.TupleGetItem(whole, i) for i in range(3)]

    mod = make_module({"x": ((2, 3, 4), "float32")}, body)
    x = RNG.standard_normal((2, 3, 4)).astype("float32")
    _, mean, variance = byoc.compile(byoc.prepare(mod), "llvm")(x)
    np.testing.assert_array_equal(mean, PARAMETERS[2])
    np.testing.assert_array_equal(variance, PARAMETERS[3])


def test_half_precision_is_folded_in_double(make_module: Any) -> None:
    """A variance near zero plus 1e-5 is not a number that float16 has."""
    tiny = np.full(3, 1e-6)
    halves = [relax.const(v.astype("float16")) for v in (*PARAMETERS[:3], tiny)]
    mod = make_module({"x": ((1, 3, 2), "float16")}, lambda x: normalized(x, *halves, epsilon=1e-5))
    x = np.full((1, 3, 2), 0.01, "float16")
    gamma, beta, mean, variance = (h.value.numpy().astype("float64") for h in halves)
    columns = [v[:, None] for v in (gamma, beta, mean, variance)]
    gamma, beta, mean, variance = columns
    expected = (x.astype("float64") - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    result = byoc.compile(byoc.prepare(mod), "llvm")(x)
    np.testing.assert_allclose(result, expected, rtol=5e-3, atol=0.5)


@pytest.mark.parametrize("convolution", [True, False])
def test_double_precision_stays_double(make_module: Any, convolution: bool) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((3, 2, 1))
    x = rng.standard_normal((1, 2, 4) if convolution else (1, 3, 4))
    coefficients = [relax.const(v.astype("float64"), "float64") for v in PARAMETERS]

    def body(x: Any) -> Any:
        if convolution:
            x = op.nn.conv1d(x, relax.const(weight, "float64"))
        return normalized(x, *coefficients, epsilon=1e-5)

    result = byoc.compile(byoc.prepare(make_module({"x": (x.shape, "float64")}, body)), "llvm")(x)
    data = np.einsum("oik,nil->nol", weight, x) if convolution else x
    gamma, beta, mean, variance = (np.asarray(v, "float64")[:, None] for v in PARAMETERS)
    expected = (data - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


def test_the_module_given_is_not_changed(make_module: Any) -> None:
    mod = make_module({"x": ((2, 3, 4), "float32")}, lambda x: normalized(x, *CONSTANTS))
    before = mod.script()
    fold_batch_norm(mod)
    assert mod.script() == before
