"""What a codegen written in Python gives for a region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm_byoc_kit.graph import Value

__all__ = ["PAYLOAD_KIND", "Payload", "missing_remedy"]

PAYLOAD_KIND = "byoc_payload"  # of the runtime modules that hold payloads


@dataclass(frozen=True)
class Payload:
    """The compiled form of a region, with the constants that its runtime wants beside it.

    A codegen that gives plain bytes owns its weights: they are in the bytes, or not needed any
    more, and the artifact holds no second copy of them.

    Parameters
    ----------
    data : bytes
        The backend's own; the kit stores them and gives them back.
    constants : tuple of Value
        Of ``graph.constants``; TVM stores them, once in the artifact however many regions share
        them, and the runtime gets their tensors in this order.
    """

    data: bytes
    constants: tuple[Value, ...] = ()


def missing_remedy(package: str) -> str:
    """What to do where a backend is not known, given the package that provides it."""
    if package:
        return f"pip install {package}"
    return "run what registers it (byoc.register_backend) in this process first"
