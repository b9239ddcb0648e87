"""ONNX models: read, scanned, given shapes, simplified, rewritten and imported."""

from tvm_byoc_kit.frontends.onnx.importer import import_onnx, onnx_reference, open_shapes

__all__ = ["import_onnx", "onnx_reference", "open_shapes"]
