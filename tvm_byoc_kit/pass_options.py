"""Options of TVM's PassContext that a TVM built without their owner does not know."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["add_pass_option"]

# tvm::transform::PassContext::RegisterConfigOption(
#     char const*, tvm::ffi::String, std::function<tvm::ffi::Any (tvm::ffi::Any)>)
_SYMBOL = (
    "_ZN3tvm9transform11PassContext20RegisterConfigOptionEPKcNS_3ffi6StringE"
    "St8functionIFNS4_3AnyES7_EE"
)


def add_pass_option(key: str, legalize: Callable[[Any], Any]) -> bool:
    """Let ``PassContext(config={key: ...})`` take a dict.

    The core plugin has to be loaded. Nothing is done where the option is known, as in a TVM that
    was built with its owner, or where TVM's compiler library is not loaded or does not export what
    adds one: then TVM says, as before, that it knows no such option.

    Parameters
    ----------
    key : str
    legalize : callable
        Gets the dict as ``tvm_ffi.Map`` when a PassContext is made; gives what is kept, or raises.

    Returns
    -------
    bool
        Whether the option is there.
    """
    import tvm_ffi

    known = tvm_ffi.get_global_func("transform.ListConfigs", allow_missing=True)
    if known is None:  # the runtime alone
        return False
    if key in known():
        return True
    library = getattr(sys.modules["tvm.base"], "_LOADED_LIBS", {}).get("tvm_compiler")
    add = tvm_ffi.get_global_func("byoc.pass_option.add", allow_missing=True)
    try:
        address = ctypes.cast(getattr(library, _SYMBOL), ctypes.c_void_p).value
    except (AttributeError, TypeError):  # of another TVM, in which it is called otherwise
        return False
    if add is None or not address:
        return False
    add(address, key, "ffi.Map", legalize)
    return key in known()
