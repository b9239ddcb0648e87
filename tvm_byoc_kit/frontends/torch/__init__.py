"""PyTorch modules through `torch.export` and TVM's importer, with PyTorch as their reference."""

from __future__ import annotations

from tvm_byoc_kit.frontends.torch.importer import import_torch

__all__ = ["import_torch"]
