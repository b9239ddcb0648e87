"""Options as upstream's scripts give them: TVM's PassContext, and environment variables.

What is given to the kit itself goes before, then the PassContext, then the environment; each option
for itself. What upstream has and TensorRT has not any more is refused where numbers depend on it,
and warned of where only speed does.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.errors import ModelError, OptionError

if TYPE_CHECKING:
    from tvm.relax import Function

__all__ = ["OPTIONS_KEY", "checked_pass_option", "given_around", "require_quantized"]

#: The key in ``PassContext(config={...})``.
OPTIONS_KEY = "relax.ext.tensorrt.options"

Fields = dict[str, Any]
_CALIBRATE = "calibrate before: byoc.calibrate(model, data)"


def given_around() -> Fields:
    """Fields of `TensorRTOptions` that the environment and the current PassContext give.

    Raises
    ------
    OptionError
        For a value that is not allowed, and for what there is no more.
    """
    return {**_from_environment(os.environ), **_from_pass_context()}


# --- The PassContext ----------------------------------------------------------------------------


def _from_pass_context() -> Fields:
    from tvm.ir.transform import PassContext

    config = PassContext.current().config
    return _read_pass_option(config[OPTIONS_KEY]) if OPTIONS_KEY in config else {}


def checked_pass_option(value: Any) -> Any:
    """`value`, which a user gives for `OPTIONS_KEY`, if it can be read.

    Raises
    ------
    OptionError
        As `given_around`.
    """
    _read_pass_option(value)
    return value


def _read_pass_option(value: Any) -> Fields:
    from tvm_byoc_kit.python_codegen import plain

    given = plain(value)
    if not isinstance(given, Mapping):
        raise OptionError(f"{OPTIONS_KEY} is a {type(given).__name__}; expected a dict")
    known = tuple(TensorRTOptions.__dataclass_fields__)
    fields: Fields = {}
    for name, item in given.items():
        if name in _UPSTREAM:
            fields |= _UPSTREAM[name](f"{OPTIONS_KEY}: {name}={item!r}", item)
        elif name in known:
            fields[name] = item
        else:
            raise OptionError(
                f"{OPTIONS_KEY} has no '{name}'; there are upstream's {', '.join(_UPSTREAM)}, and "
                f"the kit's {', '.join(known)}"
            )
    TensorRTOptions(**fields)
    return fields


def _flag(what: str, value: Any) -> bool:
    if value not in (0, 1):  # True and False too
        raise OptionError(f"{what}: expected True or False")
    return bool(value)


def _bytes(what: str, value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise OptionError(f"{what}: expected a number of bytes")
    return value


def _without_effect(what: str, value: Any, why: str) -> Fields:
    if _flag(what, value):
        warnings.warn(f"{what} has no effect: {why}", stacklevel=2)
    return {}


def _refused(what: str, value: Any, why: str) -> Fields:
    if _flag(what, value):
        raise OptionError(f"{what}: {why}")
    return {}


# Upstream's options, src/relax/backend/contrib/tensorrt/codegen.cc; each gives fields.
_UPSTREAM: Mapping[str, Callable[[str, Any], Fields]] = {
    # Upstream notes the version and does nothing with it.
    "tensorrt_version": lambda _what, _value: {},
    "use_implicit_batch": lambda what, value: _without_effect(
        what, value, "since TensorRT 10 the batch is always explicit"
    ),
    "max_workspace_size": lambda what, value: {"workspace_bytes": _bytes(what, value)},
    "remove_no_mac_subgraphs": lambda what, value: _without_effect(
        what, value, "regions are made by then; byoc.partition has a policy, {'require_mac': True}"
    ),
    "use_fp16": lambda what, value: {"precision": "fp16"} if _flag(what, value) else {},
    "use_uint8": lambda what, value: _refused(what, value, f"TensorRT has int8; {_CALIBRATE}"),
}


# --- The environment ----------------------------------------------------------------------------


def _from_environment(environment: Mapping[str, str]) -> Fields:
    given = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    fields: Fields = {}
    for name, text in given.items():
        fields |= _VARIABLES[name](f"{name}={text}", text)
    if all(_switch(name, given.get(name, "0")) for name in _PRECISIONS):
        raise OptionError(
            f"{' and '.join(_PRECISIONS)} are both set; on a quantized model the latter alone "
            "computes in 8 bits what is quantized, and the rest in half precision"
        )
    return fields


_PRECISIONS = ("TVM_TENSORRT_USE_INT8", "TVM_TENSORRT_USE_FP16")


def _switch(what: str, text: str) -> bool:
    switches = {"0": False, "false": False, "1": True, "true": True}
    if text.lower() not in switches:
        raise OptionError(f"{what}: expected 1 or 0")
    return switches[text.lower()]


def _number(what: str, text: str) -> int:
    if not text.isdecimal():
        raise OptionError(f"{what}: expected a whole number")
    return int(text)


def _no_calibration_at_run_time(what: str, text: str) -> Fields:
    if _number(what, text):
        raise OptionError(
            f"{what}: the first calls do not calibrate, TensorRT 11 has no class for that; "
            f"{_CALIBRATE}, and unset the variable"
        )
    return {}


_VARIABLES: Mapping[str, Callable[[str, str], Fields]] = {
    "TVM_TENSORRT_USE_INT8": lambda what, text: (
        {"precision": "int8"} if _switch(what, text) else {}
    ),
    "TVM_TENSORRT_USE_FP16": lambda what, text: (
        {"precision": "fp16"} if _switch(what, text) else {}
    ),
    "TENSORRT_NUM_CALI_INT8": _no_calibration_at_run_time,
    "TVM_TENSORRT_MAX_WORKSPACE_SIZE": lambda what, text: (
        {"workspace_bytes": _number(what, text)} if _number(what, text) else {}
    ),
    "TVM_TENSORRT_CACHE_DIR": lambda _what, text: {"engine_cache": text},
    "TVM_TENSORRT_MULTI_ENGINE": lambda what, text: _without_effect(
        what,
        _switch(what, text),
        "one engine serves all batch sizes; give the option `profiles` several of them for more "
        "speed",
    ),
}


# --- 8 bits ---------------------------------------------------------------------------------------


def require_quantized(precision: str, functions: Iterable[Function]) -> None:
    """Refuse 8 bits for a model in which nothing says how.

    Raises
    ------
    ModelError
    """
    from tvm_byoc_kit.rewriting import bindings_of, op_name

    if precision != "int8":
        return
    values = (binding.value for function in functions for binding in bindings_of(function))
    if not any(op_name(value) == "relax.dequantize" for value in values):
        raise ModelError(
            "precision int8 needs a model with quantize and dequantize ops, and this one has none; "
            "byoc.calibrate(model, data) gives one"
        )
