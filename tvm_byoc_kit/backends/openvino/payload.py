"""The bytes that the codegen makes and an executor reads.

========  =================================================================================
bytes     content
========  =================================================================================
8         ``OPENVIN2``; the digit is the format's
8         length of the header, little endian
n         the header, JSON: the fields of :class:`Header`
…         the model in OpenVINO's IR: ``model_bytes`` of XML
…         zeros up to a multiple of 64, counted from the start
…         the model's small constants: ``weights_bytes``
========  =================================================================================

The large constants stand beside it, as `constants` tells.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field

__all__ = ["Header", "pack", "unpack"]

_MAGIC = b"OPENVIN2"
_OLDER = b"OPENVINO"  # with all weights in it
_FIXED = struct.Struct("<8sQ")
_ALIGNMENT = 64


@dataclass(frozen=True)
class Header:
    """What an executor must know beside the model.

    Parameters
    ----------
    device : str
        That the model is compiled for.
    properties : mapping of str to str
        OpenVINO's own names and values, for compiling.
    inputs, outputs : list of int
        For each of the model's ports, the number of the call's argument that is bound to it.
    copies : list of (int, int)
        Numbers of arguments, the second of which is an output that equals the first, an input.
        The model has no port for such an output.
    constants : int
        How many constants the executor gets, for the model's last parameters; `inputs` are those
        before them.
    model_bytes, weights_bytes : int
    """

    device: str
    properties: dict[str, str]
    inputs: list[int]
    outputs: list[int]
    copies: list[tuple[int, int]] = field(default_factory=list)
    constants: int = 0
    model_bytes: int = 0
    weights_bytes: int = 0


def pack(header: Header, weights: bytes | memoryview, model: bytes) -> bytes:
    """The payload, with the two sizes filled in."""
    fields = {**asdict(header), "model_bytes": len(model), "weights_bytes": len(weights)}
    text = json.dumps(fields).encode()
    start = _FIXED.size + len(text) + len(model)
    padding = bytes(-start % _ALIGNMENT)
    return b"".join((_FIXED.pack(_MAGIC, len(text)), text, model, padding, weights))


def unpack(payload: bytes | memoryview) -> tuple[Header, bytes, memoryview]:
    """Header, model and weights; the weights are the payload's own memory.

    Raises
    ------
    ValueError
        For bytes that `pack` did not make.
    """
    view = memoryview(payload)
    magic, length = _FIXED.unpack_from(view) if len(view) >= _FIXED.size else (b"", 0)
    if magic == _OLDER:
        raise ValueError(
            "this payload of the OpenVINO backend is of an older release of the kit, which stored "
            "weights otherwise; build the model again"
        )
    if magic != _MAGIC:
        raise ValueError("this is no payload of the OpenVINO backend; build the model again")
    at = _FIXED.size + length
    if len(view) < at:
        raise ValueError("a payload of the OpenVINO backend is cut off; build the model again")
    fields = json.loads(bytes(view[_FIXED.size : at]))
    header = Header(**{**fields, "copies": [(int(a), int(b)) for a, b in fields["copies"]]})
    end = at + header.model_bytes
    weights = end + -end % _ALIGNMENT
    if len(view) != weights + header.weights_bytes:
        raise ValueError("a payload of the OpenVINO backend is cut off; build the model again")
    return header, bytes(view[at:end]), view[weights:]
