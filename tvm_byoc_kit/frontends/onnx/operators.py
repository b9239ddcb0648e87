"""Which of ONNX's operators TVM's importer has a converter for."""

from __future__ import annotations

import functools

__all__ = ["importer_operators"]

# What TVM's importer handles outside its converter map.
_BESIDE_THE_MAP = {"If"}

# Converters in the map that are for another domain's operator of the same name: Attention
# expects com.microsoft's inputs. The function bodies come instead.
_FOREIGN_CONVERTERS = {"Attention"}


@functools.cache
def importer_operators() -> frozenset[str]:
    """ONNX's own operators that TVM's importer converts."""
    from tvm.relax.frontend.onnx import onnx_frontend

    converters = set(onnx_frontend._get_convert_map())  # noqa: SLF001  there is no public list
    return frozenset((converters - _FOREIGN_CONVERTERS) | _BESIDE_THE_MAP)
