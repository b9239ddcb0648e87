"""Two of the models that scripts/bench.py measures, with random weights."""

from __future__ import annotations

import torch
from torch import nn

# Width and number of blocks of each stage: He et al., 2015, table 1, 50 layers.
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    """A convolution with its batch normalization."""
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    ]


class Bottleneck(nn.Module):
    """Down to `width` channels, 3x3, and up again; the 3x3 has the stride."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.body = nn.Sequential(
            *convolution(inputs, width, 1),
            nn.ReLU(),
            *convolution(width, width, 3, stride),
            nn.ReLU(),
            *convolution(width, outputs, 1),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(*convolution(inputs, outputs, 1, stride))
        )
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block of the paper's figure 5."""
        return self.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """ResNet-50 for images of 224 x 224."""
    layers = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for number, (width, blocks) in enumerate(STAGES):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if number and not block else 1))
            inputs = width * EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class BertLike(nn.Module):
    """Word and position embeddings, four encoder layers, the first token pooled."""

    WORDS, TOKENS, WIDTH, HEADS, LAYERS = 1000, 128, 256, 4, 4

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(self.WORDS, self.WIDTH)
        self.positions = nn.Parameter(torch.randn(1, self.TOKENS, self.WIDTH))
        self.norm = nn.LayerNorm(self.WIDTH)
        layer = nn.TransformerEncoderLayer(
            self.WIDTH, self.HEADS, 4 * self.WIDTH, batch_first=True, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, self.LAYERS, enable_nested_tensor=False)
        self.pooler = nn.Sequential(nn.Linear(self.WIDTH, self.WIDTH), nn.Tanh())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The pooled first token, as BERT's classifier takes it."""
        x = self.encoder(self.norm(self.words(tokens) + self.positions))
        return self.pooler(x[:, 0])
