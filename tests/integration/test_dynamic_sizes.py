"""Each way of leaving the batch open, from each framework, on each backend, at many sizes."""

from __future__ import annotations

import functools
import io
import subprocess
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import tvm_byoc_kit as byoc
from tvm_byoc_kit import Buckets, Profile

Array = np.ndarray
Run = Callable[[Array], Array]
RunPython = Callable[..., subprocess.CompletedProcess[str]]

BATCHES = (1, 3, 4, 7, 16, 21)
BACKENDS = ("openvino", "example_npu", "llvm")
SCHEMES: dict[str, Buckets | Profile | None] = {
    "symbolic": None,
    "buckets": Buckets(1, 4, 16),
    "combined": Buckets(1, 4, 16, fallback="symbolic"),
    "profile": Profile(1, 4, 32),
}


def images(batch: int) -> Array:
    return np.random.default_rng(batch).standard_normal((batch, 3, 6, 6), dtype=np.float32)


# ------------------------------------------------------------------ the models


def proto() -> onnx.ModelProto:
    """A convolution with its batch normalization, a mean over the image, a classifier."""
    rng = np.random.default_rng(0)
    shapes = {"w": (4, 3, 3, 3), "fc": (4, 5), "scale": (4,), "shift": (4,), "mean": (4,)}
    constants = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    constants["variance"] = rng.uniform(0.5, 1.5, 4)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "fc"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "convnet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 6, 6])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 5])],
        [numpy_helper.from_array(v.astype("float32"), name) for name, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


class Attention(nn.Module):
    """Patches as tokens, each looks at all of its image, the first one classified."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(12, 8)
        self.query = nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(image.reshape(image.shape[0], 9, 12))
        weights = (self.query(tokens) @ tokens.mT).softmax(-1)
        return self.head((weights @ tokens)[:, 0])


@functools.cache
def from_onnx() -> tuple[Any, Run]:
    """The model, and what runs it in ONNX Runtime."""
    session = onnxruntime.InferenceSession(proto().SerializeToString())
    model = byoc.load_model(proto(), {"image": ("batch", 3, 6, 6)})
    return model, lambda image: session.run(None, {"image": image})[0]


@functools.cache
def from_torch() -> tuple[Any, Run]:
    """The model, and what runs it in PyTorch."""
    torch.manual_seed(0)
    module = Attention().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    model = byoc.load_model(module, (torch.from_numpy(images(3)),), ({0: batch},))

    def run(image: Array) -> Array:
        with torch.inference_mode():
            return module(torch.from_numpy(image)).numpy()

    return model, run


FRAMEWORKS = {"onnx": from_onnx, "torch": from_torch}


@pytest.fixture(scope="module")
def executables() -> Callable[..., byoc.Executable]:
    """Gives ``(framework, backend, scheme)``; each is built once."""

    @functools.cache
    def make(framework: str, backend: str, scheme: str) -> byoc.Executable:
        return byoc.compile(FRAMEWORKS[framework]()[0], backend, batch=SCHEMES[scheme])

    return make


def outcome(results: Mapping[str, Array]) -> Array:
    (value,) = results.values()
    return value


# ------------------------------------------------------------------ tests


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=pytest.mark.byoc(name)) for name in BACKENDS]
)
def test_every_batch_gives_what_the_framework_gives(
    backend: str, framework: str, scheme: str, executables: Callable[..., byoc.Executable]
) -> None:
    exe = executables(framework, backend, scheme)
    (name,) = (spec.name for spec in exe.manifest.inputs)
    reference = FRAMEWORKS[framework]()[1]
    for batch in BATCHES:
        image = images(batch)
        np.testing.assert_allclose(
            outcome(exe.run({name: image})), reference(image), 1e-4, 1e-5, err_msg=f"{batch}"
        )


@pytest.mark.byoc("openvino")
@pytest.mark.byoc("example_npu")
def test_artifacts_of_several_builds_run_in_a_fresh_process(
    executables: Callable[..., byoc.Executable], run_python: RunPython, tmp_path: Path
) -> None:
    for backend in BACKENDS:
        for framework in FRAMEWORKS:
            executables(framework, backend, "combined").export(
                tmp_path / f"{framework}-{backend}.so"
            )
    np.savez(tmp_path / "images.npz", **{str(batch): images(batch) for batch in BATCHES})
    done = run_python(_RUN_ALL, tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "results.npz") as results:
        assert len(results) == len(BACKENDS) * len(FRAMEWORKS) * len(BATCHES)
        for key, actual in results.items():
            framework, _, batch = key.split("-")
            expected = FRAMEWORKS[framework]()[1](images(int(batch)))
            np.testing.assert_allclose(actual, expected, 1e-4, 1e-5, err_msg=key)


_RUN_ALL = """
import sys
from pathlib import Path
import numpy as np
import tvm_byoc_kit as byoc

folder, results = Path(sys.argv[1]), {}
for path in folder.glob("*.so"):
    exe = byoc.load(path)
    (name,) = (spec.name for spec in exe.manifest.inputs)
    for batch, image in np.load(folder / "images.npz").items():
        (results[f"{path.stem}-{batch}"],) = exe.run({name: image}).values()
np.savez(folder / "results.npz", **results)
"""


class Vision(Attention):
    """As exporters write it: the class token repeated, heads by `view`, flattened by `size(0)`."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        batch = image.size(0)
        tokens = self.embed(image.view(batch, 9, 12))
        tokens = torch.cat([tokens.new_ones(1, 1, 8).expand(batch, -1, -1), tokens], 1)
        heads = self.query(tokens).view(batch, -1, 2, 4).transpose(1, 2)
        weights = torch.einsum("bhid,bhjd->bhij", heads, heads).softmax(-1)
        mixed = (weights @ heads).transpose(1, 2).reshape(batch, -1, 8)
        pooled = mixed.mean(1) + tokens.new_ones(1, 8).repeat(batch, 1)
        return self.head(pooled.view(batch, -1))


class Text(nn.Module):
    """A masked encoder, with positions counted and the mean over what is not masked."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(50, 8), nn.Embedding(16, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1])[None].expand(ids.shape[0], ids.shape[1])
        hidden = self.layer(self.words(ids) + self.positions(places), src_key_padding_mask=mask < 1)
        kept = mask[:, :, None].expand(hidden.size()).to(hidden.dtype)
        return (hidden * kept).sum(1) / kept.sum(1)


def texts(batch: int) -> dict[str, Array]:
    ids = np.random.default_rng(batch).integers(0, 50, (batch, 6))
    return {"ids": ids, "mask": (ids % 3 > 0).astype("int64") | (np.arange(6) == 0)}


FILES: dict[str, tuple[type[nn.Module], Callable[[int], dict[str, Array]]]] = {
    "vision": (Vision, lambda batch: {"image": images(batch)}),
    "text": (Text, texts),
}


@functools.cache
def exported(name: str) -> bytes:
    """The file that torch's exporter writes, with an open batch."""
    kind, inputs = FILES[name]
    torch.manual_seed(0)
    file, given = io.BytesIO(), {key: torch.from_numpy(value) for key, value in inputs(2).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            kind().eval(),
            tuple(given.values()),
            file,
            input_names=list(given),
            dynamic_axes={key: {0: "batch"} for key in given},
            opset_version=17,
            dynamo=False,
        )
    return file.getvalue()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=pytest.mark.byoc(name)) for name in BACKENDS]
)
def test_files_of_torchs_exporter_take_every_batch(backend: str, name: str) -> None:
    session = onnxruntime.InferenceSession(exported(name))
    model = onnx.load_from_string(exported(name))
    exe = byoc.compile(model, backend, batch=Buckets(1, 4, fallback="symbolic"))
    assert exe.manifest.variants.dimensions["batch"].split
    for batch in (1, 3, 4, 7, 9):
        inputs = FILES[name][1](batch)
        (expected,) = session.run(None, inputs)
        np.testing.assert_allclose(
            outcome(exe.run(inputs)), expected, 1e-4, 1e-5, err_msg=f"{batch}"
        )


@pytest.mark.byoc("tensorrt", step="codegen")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("scheme", ["buckets", "combined", "profile"])
def test_tensorrt_builds_one_region_with_a_profile_for_each_range(
    framework: str, scheme: str, tmp_path: Path
) -> None:
    """Built, not run: that needs a GPU."""
    model, batch = FRAMEWORKS[framework]()[0], SCHEMES[scheme]
    exe = byoc.compile(model, "tensorrt", batch=batch, options={"compute_capabilities": [89]})
    exe.export(tmp_path / "model.so")
    ranges = [(1, 1, 1), (2, 4, 4), (5, 16, 16)] if scheme != "profile" else [(1, 4, 32)]
    symbol = model.inputs[0].shape[0]
    assert [tuple(item[symbol]) for item in exe.manifest.options["profiles"]] == ranges
    assert len(exe.manifest.variants.builds) == 1
    assert len(exe.manifest.regions) == 1


@pytest.mark.byoc("example_npu")
def test_the_manifest_and_the_plan_say_which_sizes_are_fast(
    executables: Callable[..., byoc.Executable],
) -> None:
    exe = executables("onnx", "example_npu", "buckets")
    assert [dict(build.sizes) for build in exe.manifest.variants.builds] == [
        {"batch": 1},
        {"batch": 4},
        {"batch": 16},
    ]
    steps = exe.plan({"batch": 7}).steps
    assert sum(step.stop - step.start for step in steps) == 7
    assert {step.sizes["batch"] for step in steps} <= {1, 4, 16}


@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=pytest.mark.byoc(name)) for name in BACKENDS]
)
def test_images_of_some_sizes_have_builds_and_others_the_open_one(backend: str) -> None:
    layers = (nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net = nn.Sequential(*layers).eval()
    batch, height, width = (torch.export.Dim(name, min=1, max=64) for name in "nhw")
    shapes = ({0: batch, 2: height, 3: width},)
    model = byoc.load_model(net, (torch.randn(2, 3, 12, 10),), shapes)
    _, _, height, width = model.inputs[0].shape
    exact = Buckets(8, 16, pad=False, fallback="symbolic")
    exe = byoc.compile(model, backend, batch=Buckets(1, 4), sizes={height: exact, width: exact})
    assert len(exe.manifest.variants.builds) == 1 + 2 * 2 * 2
    for size in ((1, 8, 8), (3, 16, 8), (5, 11, 9), (4, 16, 16)):
        image = np.random.default_rng(0).standard_normal((size[0], 3, *size[1:]), np.float32)
        with torch.inference_mode():
            expected = net(torch.from_numpy(image)).numpy()
        np.testing.assert_allclose(exe(image), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(byoc.ModelError, match=r"cannot be padded: relax\.nn\.conv2d"):
        byoc.compile(model, backend, sizes={height: Buckets(8, 16)})
