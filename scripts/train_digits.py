#!/usr/bin/env python3
"""Train the digits classifier that the quickstart runs, and write what the package ships.

Writes ``digits.onnx`` (the trained network, batch fixed to one) and ``digits_test.npz`` (the
held-out images and labels) into ``tvm_byoc_kit/data``. Needs torch, scikit-learn and onnx::

    python scripts/train_digits.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

DATA_DIR = Path(__file__).resolve().parents[1] / "tvm_byoc_kit" / "data"
SEED = 20_27
HELD_OUT = 360  # a fifth of the 1797 images, stratified by label
EPOCHS = 40
BATCH = 32
MAX_PIXEL = 16.0  # the data set counts dark pixels in 4x4 blocks
OPSET = 17
IR_VERSION = 8  # read by every ONNX Runtime since 1.12


def make_network() -> nn.Sequential:
    """Two 3x3 convolutions, a max-pool and two dense layers: 38 282 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def load_split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training images, held-out images (uint8 [n, 8, 8]) and the labels of each [n]."""
    digits = load_digits()
    images = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=HELD_OUT, stratify=labels, random_state=SEED
    )
    return train_x, test_x, train_y, test_y


def as_input(images: np.ndarray) -> torch.Tensor:
    """Scale uint8 images [n, 8, 8] to the network's float32 input [n, 1, 8, 8] in 0..1."""
    return torch.from_numpy(images.astype(np.float32)[:, None] / np.float32(MAX_PIXEL))


def train(network: nn.Sequential, images: np.ndarray, labels: np.ndarray) -> None:
    """Minimise cross-entropy with Adam and a cosine schedule; shuffling follows the seed."""
    inputs, targets = as_input(images), torch.from_numpy(labels.astype(np.int64))
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(inputs[batch]), targets[batch]).backward()
            optimizer.step()
        scheduler.step()


def accuracy(network: nn.Sequential, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images whose largest logit is their label."""
    with torch.no_grad():
        predicted = network(as_input(images)).argmax(dim=1).numpy()
    return float((predicted == labels).mean())


def to_onnx(network: nn.Sequential) -> onnx.ModelProto:
    """Write the graph node by node: the same bytes every time, and no exporter to install.

    Dense weights are stored as [inputs, outputs], so that ``Gemm`` has nothing to transpose.
    """
    weights = {
        f"{layer}.{kind}": np.ascontiguousarray(value.detach().numpy())
        for layer, module in zip(
            ("conv1", "conv2", "dense1", "dense2"),
            (m for m in network if isinstance(m, (nn.Conv2d, nn.Linear))),
            strict=True,
        )
        for kind, value in (
            ("weight", module.weight.T if isinstance(module, nn.Linear) else module.weight),
            ("bias", module.bias),
        )
    }
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    # (operator, inputs, output, attributes); a node carries the name of its output.
    layers: list[tuple[str, list[str], str, dict[str, object]]] = [
        ("Conv", ["image", "conv1.weight", "conv1.bias"], "conv1", conv),
        ("Relu", ["conv1"], "relu1", {}),
        ("Conv", ["relu1", "conv2.weight", "conv2.bias"], "conv2", conv),
        ("Relu", ["conv2"], "relu2", {}),
        ("MaxPool", ["relu2"], "pool", pool),
        ("Flatten", ["pool"], "flat", {"axis": 1}),
        ("Gemm", ["flat", "dense1.weight", "dense1.bias"], "dense1", {}),
        ("Relu", ["dense1"], "relu3", {}),
        ("Gemm", ["relu3", "dense2.weight", "dense2.bias"], "logits", {}),
    ]
    graph = helper.make_graph(
        [
            helper.make_node(op, inputs, [output], name=output, **attributes)
            for op, inputs, output, attributes in layers
        ],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="tvm_byoc_kit/scripts/train_digits.py",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, report the accuracy on both splits, and write the two files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=DATA_DIR, help="folder to write into")
    output: Path = parser.parse_args().output

    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the order of a sum, and so its last bit, follows the thread count
    train_x, test_x, train_y, test_y = load_split()
    network = make_network()
    train(network, train_x, train_y)

    output.mkdir(parents=True, exist_ok=True)
    onnx.save(to_onnx(network), output / "digits.onnx")
    np.savez_compressed(output / "digits_test.npz", images=test_x, labels=test_y)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    print(f"parameters          {parameters}")
    print(f"training accuracy   {accuracy(network, train_x, train_y):.4f} of {len(train_x)}")
    print(f"held-out accuracy   {accuracy(network, test_x, test_y):.4f} of {len(test_x)}")


if __name__ == "__main__":
    main()
