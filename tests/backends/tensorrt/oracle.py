"""The oracle: `interpret`, with the functions of every layer type registered."""

from __future__ import annotations

from . import layers_computing, layers_moving, layers_resizing
from .interpreter import KINDS, OracleError, attributes, interpret, read_weights, to_numpy, to_torch

__all__ = [
    "KINDS",
    "OracleError",
    "attributes",
    "interpret",
    "layers_computing",
    "layers_moving",
    "layers_resizing",
    "read_weights",
    "to_numpy",
    "to_torch",
]
