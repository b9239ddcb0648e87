"""Writes operators in the form that the model's opset has for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tvm_byoc_kit.frontends.onnx.graph_tools import Replacement

__all__ = ["Emitter"]

# Opsets since which Split and Unsqueeze have their numbers as inputs, and Clip its limits.
_AXES_ARE_INPUTS = 13
_LIMITS_ARE_INPUTS = 11
# Parts of one split or join.
_AT_ONCE = 16


class Emitter:
    """Writes operators in the form that the model's opset has for them.

    Parameters
    ----------
    replacement : Replacement
        Collects the nodes.
    opset : int
    dtype : int
        TensorProto.DataType of the node's floating-point values.
    """

    def __init__(self, replacement: Replacement, opset: int, dtype: int) -> None:
        self.opset = opset
        self.dtype = dtype
        self._replacement = replacement
        self._constants: dict[tuple[Any, ...], str] = {}

    def __call__(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node; gives the name of its only output."""
        return self._replacement.add(op, inputs, output, **attributes)

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """The name of a constant; equal ones are written once."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._replacement.constant(array)
        return self._constants[key]

    def scalar(self, value: float) -> str:
        """A constant of the node's own element type."""
        return self.constant(value, onnx.helper.tensor_dtype_to_np_dtype(self.dtype))

    def split(self, x: str, sizes: list[int], axis: int) -> list[str]:
        """`x` in parts of `sizes` along `axis`."""
        if len(sizes) == 1:
            return [x]
        given: dict[str, Any] = {"axis": axis}
        inputs = [x]
        if self.opset < _AXES_ARE_INPUTS:
            given["split"] = sizes
        else:
            inputs.append(self.constant(sizes))
        return self._replacement.add_many("Split", inputs, [None] * len(sizes), **given)

    def slices(self, x: str, count: int, width: int) -> list[str]:
        """`x` in `count` parts of `width` along the first axis, split in stages.

        Parts come from few kinds of split this way, each of few parts, and TVM compiles one
        function for each kind. A Gather would bring the code that makes its index positive.
        """
        if count == 1:
            return [x]
        stage = 1
        while stage * _AT_ONCE < count:
            stage *= _AT_ONCE
        counts = [min(stage, count - start) for start in range(0, count, stage)]
        parts = self.split(x, [width * number for number in counts], axis=0)
        return [
            part
            for stretch, number in zip(parts, counts, strict=True)
            for part in self.slices(stretch, number, width)
        ]

    def unsqueeze(self, x: str, axis: int, output: str | None = None) -> str:
        """`x` with a dimension of one at `axis`, counted from the front."""
        if self.opset < _AXES_ARE_INPUTS:
            return self("Unsqueeze", x, output=output, axes=[axis])
        return self("Unsqueeze", x, self.constant([axis]), output=output)

    def squeeze(self, x: str, axis: int) -> str:
        """`x` without the dimension of one at `axis`."""
        if self.opset < _AXES_ARE_INPUTS:
            return self("Squeeze", x, axes=[axis])
        return self("Squeeze", x, self.constant([axis]))

    def reshape(self, x: str, shape: list[int], output: str | None = None) -> str:
        """`x` in `shape`, with 0 for a dimension kept and -1 for the one to infer."""
        return self("Reshape", x, self.constant(shape), output=output)

    def clip(self, x: str, limit: float | None) -> str:
        """`x` within ``[-limit, limit]``; None is no limit."""
        if limit is None:
            return x
        if self.opset < _LIMITS_ARE_INPUTS:
            return self("Clip", x, min=-limit, max=limit)
        return self("Clip", x, self.scalar(-limit), self.scalar(limit))

    def concat(self, parts: list[str], axis: int) -> str:
        """`parts` joined in groups: TVM's code for a join tries its parts one after the other."""
        while len(parts) > 1:
            groups = [parts[i : i + _AT_ONCE] for i in range(0, len(parts), _AT_ONCE)]
            parts = [
                self("Concat", *group, axis=axis) if len(group) > 1 else group[0]
                for group in groups
            ]
        return parts[0]

    def matmul(self, x: str, matrix: str) -> str:
        """The matrix product."""
        return self("MatMul", x, matrix)

    def add(self, x: str, y: str | None) -> str:
        """The sum; a `y` of None is zero."""
        return x if y is None else self("Add", x, y)
