"""byoc.calibrate: ranges, fake quantization and accuracy against PyTorch's and NumPy's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import InputError, ModelError, OptionError
from tvm_byoc_kit.prepare_report import count_ops

torch = pytest.importorskip("torch")
nn = torch.nn
functional = torch.nn.functional

Array = np.ndarray
DATA = Path(str(files("tvm_byoc_kit"))) / "data"


class Residual(nn.Module):
    """Two convolutions, the second one added to what the first one gave, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.first(x))
        z = torch.relu(self.second(y) + y)
        return self.last(z.mean((2, 3)))

    def activations(self, x: Any) -> dict[str, Any]:
        """What the quantized ops read, by the names of the report."""
        y = torch.relu(self.first(x))
        z = torch.relu(self.second(y) + y)
        return {"conv2d_0.data": x, "conv2d_1.data": y, "matmul_0.data": z.mean((2, 3))}


@pytest.fixture(scope="module")
def net() -> Residual:
    torch.manual_seed(0)
    return Residual().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def batches() -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, 3, 8, 8), dtype=np.float32) * (1 + i) for i in range(6)]


@pytest.fixture(scope="module")
def model(net: Residual) -> byoc.ImportedModel:
    return byoc.load_model(net, (torch.zeros(2, 3, 8, 8),))


def fake_weights(module: Any) -> Any:
    """Weights as bytes by output channel and back, by PyTorch."""
    weights = module.weight
    largest = weights.abs().amax(tuple(range(1, weights.ndim)))
    zeros = torch.zeros(len(largest), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weights, largest / 127, zeros, 0, -128, 127)


def fake(x: Any, scale: float) -> Any:
    return torch.fake_quantize_per_tensor_affine(x, scale, 0, -128, 127)


def quantized_by_torch(net: Residual, x: Any, scales: dict[str, float]) -> Any:
    """The model with what `calibrate` shall insert."""
    data = fake(x, scales["conv2d_0.data"])
    y = torch.relu(functional.conv2d(data, fake_weights(net.first), net.first.bias, padding=1))
    y = fake(y, scales["conv2d_1.data"])
    z = functional.conv2d(y, fake_weights(net.second), net.second.bias, padding=1, groups=2)
    z = fake(torch.relu(z + y).mean((2, 3)), scales["matmul_0.data"])
    return functional.linear(z, fake_weights(net.last), net.last.bias)


def test_ranges_are_those_that_torch_computes(
    model: byoc.ImportedModel, net: Residual, batches: list[Array]
) -> None:
    report = byoc.calibrate(model, batches).calibration
    assert report is not None
    seen = [net.activations(torch.from_numpy(batch)) for batch in batches]
    assert [item.name for item in report.ranges] == list(seen[0])
    for item in report.ranges:
        values = torch.stack([one[item.name] for one in seen])
        assert item.low == pytest.approx(values.min().item(), rel=1e-5)
        assert item.high == pytest.approx(values.max().item(), rel=1e-5)
        assert item.threshold == max(-item.low, item.high)
        assert item.scale == pytest.approx(item.threshold / 127, rel=1e-6)
    assert report.calls == 6


def test_the_result_is_torchs_fake_quantization(
    model: byoc.ImportedModel, net: Residual, batches: list[Array]
) -> None:
    calibrated = byoc.calibrate(model, batches)
    scales = {item.name: item.scale for item in calibrated.calibration.ranges}
    got = byoc.compile(calibrated, "llvm")(batches[2])
    expected = quantized_by_torch(net, torch.from_numpy(batches[2]), scales).numpy()
    exact = net(torch.from_numpy(batches[2])).numpy()
    # A sum in another order may round one element to the neighbouring byte: a 127th of a range.
    assert np.abs(got - expected).max() < 0.2 * np.abs(expected - exact).max()


def test_what_is_added_to_a_convolution_is_its_own_quantized_input(
    model: byoc.ImportedModel, batches: list[Array]
) -> None:
    calibrated = byoc.calibrate(model, batches)
    ops = count_ops(calibrated.mod)
    # Three activations and three weights; the addend has the pair of the second convolution.
    assert (ops["relax.quantize"], ops["relax.dequantize"]) == (3, 6)
    sums = calls(calibrated.mod, "relax.add")
    read = [producer(calibrated.mod, operand) for total in sums for operand in total.args]
    assert read.count("relax.dequantize") == 1


def calls(mod: tvm.IRModule, op: str) -> list[Any]:
    bindings = (item for block in mod["main"].body.blocks for item in block.bindings)
    return [item.value for item in bindings if getattr(item.value.op, "name", "") == op]


def producer(mod: tvm.IRModule, operand: Any) -> str:
    bindings = (item for block in mod["main"].body.blocks for item in block.bindings)
    return next((str(item.value.op.name) for item in bindings if item.var.same_as(operand)), "")


def test_weights_are_bytes_with_a_scale_for_each_output(
    model: byoc.ImportedModel, net: Residual, batches: list[Array]
) -> None:
    calibrated = byoc.calibrate(model, batches)
    stored = [
        call for call in calls(calibrated.mod, "relax.dequantize") if hasattr(call.args[0], "value")
    ]
    assert [call.args[0].value.dtype for call in stored] == ["int8"] * 3
    for call, module in zip(stored, (net.first, net.second, net.last), strict=True):
        axis = int(call.attrs.axis)
        data = np.moveaxis(call.args[0].value.numpy(), axis, 0).astype(np.float32)
        scale = call.args[1].value.numpy()
        back = data * scale.reshape(-1, *[1] * (data.ndim - 1))
        np.testing.assert_allclose(back, fake_weights(module).numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_the_digits_classifier_keeps_its_accuracy(method: str) -> None:
    """Calibrated with 100 of the held-out images, measured on all 360: 97.8 % before."""
    with np.load(DATA / "digits_test.npz") as held_out:
        images = held_out["images"].reshape(-1, 1, 1, 8, 8).astype(np.float32) / np.float32(16)
        labels = held_out["labels"]
    calibrated = byoc.calibrate(
        DATA / "digits.onnx",
        images[:100],
        method,
        held_out=images,
        metric=lambda outputs: float((outputs["logits"].argmax(1) == labels).mean()),
    )
    report = calibrated.calibration
    assert report is not None
    assert report.ops == dict.fromkeys(("conv2d_0", "conv2d_1"), "relax.nn.conv2d") | dict.fromkeys(
        ("matmul_0", "matmul_1"), "relax.matmul"
    )
    before, after = report.metric or (0, 0)
    assert before == pytest.approx(352 / 360)
    assert abs(after - before) <= 1 / 360 + 1e-9
    assert (report.reference, report.before[0].name) == ("onnxruntime", "logits")
    assert report.measured_on == "360 calls of the held-out data"
    assert report.before[0].snr_db > 100
    assert report.after[0].cosine > 0.9999
    assert 35 < report.after[0].snr_db < 60
    assert byoc.verify(byoc.compile(calibrated, "example_npu"))


def test_accuracy_is_numpys(model: byoc.ImportedModel, net: Residual, batches: list[Array]) -> None:
    calibrated = byoc.calibrate(model, batches, measured=4)
    report = calibrated.calibration
    exe = byoc.compile(calibrated, "llvm")
    got = np.concatenate([exe(batch) for batch in batches[:4]]).ravel().astype(np.float64)
    expected = np.concatenate([net(torch.from_numpy(batch)) for batch in batches[:4]]).ravel()
    after = report.after[0]
    noise = got - expected
    cosine = got @ expected / np.linalg.norm(got) / np.linalg.norm(expected)
    assert after.cosine == pytest.approx(cosine, abs=1e-6)
    assert after.snr_db == pytest.approx(
        10 * np.log10((expected**2).sum() / (noise**2).sum()), abs=0.05
    )
    assert after.max_abs == pytest.approx(np.abs(noise).max(), rel=0.05)
    assert report.reference == "torch"
    expected_text = "4 calls of the calibration data, which it was calibrated with"
    assert report.measured_on == expected_text
    assert "after:  cosine" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["after"][0]["name"] == "output"


def forms(batches: list[Array], folder: Path) -> Iterator[Any]:
    """The same data, in every form."""
    stacked = np.stack(batches)
    np.savez(folder / "data.npz", x=stacked)
    yield [{"x": batch} for batch in batches]
    yield ({"x": batch} for batch in batches)
    yield batches
    yield stacked
    yield np.concatenate([*batches, np.full((1, 3, 8, 8), 1e6, np.float32)])  # a call too few
    yield {"x": stacked}
    yield str(folder / "data.npz")
    yield folder / "data.npz"
    yield torch.from_numpy(stacked)


def test_every_form_of_data_gives_the_same(
    model: byoc.ImportedModel, batches: list[Array], tmp_path: Path
) -> None:
    reports = [byoc.calibrate(model, data).calibration for data in forms(batches, tmp_path)]
    assert all(report == reports[0] for report in reports)


def test_a_symbolic_batch_takes_what_there_is(make_module: Any) -> None:
    weights = relax.const(np.eye(4, dtype="float32"))
    mod = make_module({"x": (("n", 4), "float32")}, lambda x: relax.op.matmul(x, weights))
    data = np.random.default_rng(0).standard_normal((19, 4), dtype=np.float32)
    calibrated = byoc.calibrate(mod, data)
    assert calibrated.calibration.calls == 3  # of 8, 8 and 3
    got = byoc.compile(calibrated, "llvm")(data)
    assert np.abs(got - data).max() <= np.abs(data).max() / 127 / 2 * 1.001


def test_half_precision_stays(make_module: Any) -> None:
    weights = relax.const(np.eye(4, dtype="float16"))
    mod = make_module({"x": ((2, 4), "float16")}, lambda x: relax.op.matmul(x, weights))
    calibrated = byoc.calibrate(mod, [np.ones((2, 4), np.float16)])
    got = byoc.compile(calibrated, "llvm")(np.full((2, 4), 0.5, np.float16))
    assert got.dtype == np.float16
    assert np.abs(got - 0.5).max() < 1 / 127


def test_products_of_computed_tensors_have_one_scale_each(make_module: Any) -> None:
    shapes = {"x": ((2, 3, 4), "float32"), "y": ((2, 4, 3), "float32")}
    mod = make_module(shapes, relax.op.matmul)
    rng = np.random.default_rng(0)
    data = [{name: rng.random(shape, np.float32) for name, (shape, _) in shapes.items()}]
    report = byoc.calibrate(mod, data).calibration
    assert [item.name for item in report.ranges] == ["matmul_0.data", "matmul_0.weights"]
    assert report.weights == 0


def test_what_is_excluded_stays_in_floating_point(
    model: byoc.ImportedModel, batches: list[Array]
) -> None:
    report = byoc.calibrate(model, batches, exclude=["conv2d_1", "relax.matmul"]).calibration
    assert report.ops == {"conv2d_0": "relax.nn.conv2d"}


def test_the_model_itself_is_not_changed(model: byoc.ImportedModel, batches: list[Array]) -> None:
    before = str(model.mod)
    calibrated = byoc.calibrate(model, batches)
    assert str(model.mod) == before
    assert (calibrated.inputs, calibrated.outputs) == (model.inputs, model.outputs)


def test_verify_compares_with_the_quantized_model(
    model: byoc.ImportedModel, batches: list[Array]
) -> None:
    checked = byoc.verify(byoc.compile(byoc.calibrate(model, batches), "llvm"))
    assert checked
    assert checked.reference == "TVM's host build"


def test_a_quantized_model_has_nothing_left(
    model: byoc.ImportedModel, batches: list[Array]
) -> None:
    with pytest.raises(ModelError, match="excluded or quantized already"):
        byoc.calibrate(byoc.calibrate(model, batches), batches)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "best"}, "method='best': expected one of minmax, entropy, percentile"),
        ({"method": "percentile", "percentile": 0}, "percentile=0: expected a number above 0"),
        ({"measured": 0}, "measured=0: expected 1 or more"),
        ({"exclude": ["conv2d_7"]}, "exclude names 'conv2d_7'.* there are: conv2d_0, conv2d_1, "),
    ],
)
def test_options_are_checked(
    model: byoc.ImportedModel, batches: list[Array], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        byoc.calibrate(model, batches, **options)


NAN = np.full((2, 3, 8, 8), np.nan, np.float32)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([], InputError, "the calibration data is empty"),
        (np.zeros((0, 3, 8, 8), np.float32), InputError, "the calibration data is empty"),
        (7, InputError, "calibration data is a int; expected an iterable of inputs"),
        ([{"y": NAN}], InputError, "call 0 of the calibration data: .*missing: x; unknown: y"),
        ({"y": NAN}, InputError, r"does not fit \(missing: x; unknown: y\); expected x: float32"),
        ([NAN[:, :2]], InputError, "call 0 of the calibration data: input 'x' has shape"),
        ([NAN.astype(np.float64)], InputError, "input 'x' is float64, expected float32"),
        (NAN[0, 0], InputError, r"input 'x' has shape \(8, 8\), expected x: float32\[2, 3, 8, 8\]"),
        (NAN[:1], InputError, "has 1 along the first axis, and a call needs 2"),
        ("nowhere.npz", InputError, "nowhere.npz cannot be read as .npz"),
        (
            [np.zeros_like(NAN), NAN],
            ModelError,
            "conv2d_0.data in call 1 of the calibration data has .* NaN",
        ),
    ],
    ids=lambda value: None if isinstance(value, (type, str)) else "data",
)
def test_data_that_does_not_fit_is_refused(
    model: byoc.ImportedModel, data: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        byoc.calibrate(model, data)


def test_held_out_data_is_checked_too(model: byoc.ImportedModel, batches: list[Array]) -> None:
    with pytest.raises(InputError, match="the held-out data is empty"):
        byoc.calibrate(model, batches, held_out=[])


def test_another_backend_may_run_the_data(model: byoc.ImportedModel, batches: list[Array]) -> None:
    host, npu = (
        byoc.calibrate(model, batches, backend=backend).calibration
        for backend in ("llvm", "example_npu")
    )
    scales = [[item.scale for item in report.ranges] for report in (host, npu)]
    np.testing.assert_allclose(*scales, rtol=1e-5)
    assert host.after[0].cosine == pytest.approx(npu.after[0].cosine, abs=1e-4)


def test_arrays_for_different_numbers_of_calls_are_refused(make_module: Any) -> None:
    shapes = {"x": ((2, 4), "float32"), "y": ((4, 3), "float32")}
    mod = make_module(shapes, relax.op.matmul)
    data = {"x": np.zeros((6, 4), np.float32), "y": np.zeros((8, 3), np.float32)}
    with pytest.raises(InputError, match="different numbers of calls: x for 3, y for 2"):
        byoc.calibrate(mod, data)
    with pytest.raises(InputError, match="the model has 2 inputs; give a dict: x, y"):
        byoc.calibrate(mod, data["x"])


def test_models_without_anything_to_quantize_are_refused(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float32")}, relax.op.nn.relu)
    with pytest.raises(ModelError, match="no convolution and no matrix product"):
        byoc.calibrate(mod, [np.zeros((2, 4), np.float32)])


def test_partitioned_models_are_refused(model: byoc.ImportedModel, batches: list[Array]) -> None:
    with pytest.raises(ModelError, match="partitioned already; calibrate it before"):
        byoc.calibrate(byoc.partition(model, "tensorrt").mod, batches)


@pytest.mark.parametrize("tiny", [1e-45, 1e-40])
def test_what_is_next_to_zero_gets_a_scale_that_hardware_has(net: Residual, tiny: float) -> None:
    """Trained models have channels of such weights, and regions of such activations."""
    dying = Residual()
    dying.load_state_dict(net.state_dict())
    with torch.no_grad():
        dying.first.weight[1] *= tiny
    data = [np.full((2, 3, 8, 8), tiny, np.float32)]
    model = byoc.load_model(dying.eval(), (torch.zeros(2, 3, 8, 8),))
    calibrated = byoc.calibrate(model, data)
    scales = [item.scale for item in calibrated.calibration.ranges]
    for call in calls(calibrated.mod, "relax.dequantize"):
        scales += list(np.atleast_1d(call.args[1].value.numpy()))
    assert min(scales) >= np.finfo(np.float32).tiny
    assert byoc.verify(byoc.compile(calibrated, "llvm"))
