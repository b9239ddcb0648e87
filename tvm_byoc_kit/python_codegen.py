"""The global functions through which TVM reaches a backend that is written in Python.

``relax.ext.<name>`` is what RunCodegen calls with the regions, and ``byoc.runtime.<name>`` what a
payload module (``csrc/core/payload.cc``) asks for its executor.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from tvm_byoc_kit import plugin_build
from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.errors import BackendUnavailable, ByocError, OptionError, reason
from tvm_byoc_kit.graph import read_graph
from tvm_byoc_kit.payload import Payload, missing_remedy

if TYPE_CHECKING:
    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.graph import Graph

__all__ = ["compile_regions", "plain", "provide", "provide_runtime", "remembering", "take_raised"]

# Backends whose `relax.ext.<name>` is registered when TVM is imported, unless TVM was built with
# one, which then compiles their regions.
_AT_IMPORT = frozenset({"tensorrt"})

# The backends whose functions are registered. The functions look their backend up here, so that
# one may take another's place.
_PROVIDED: dict[str, Backend] = {}
_LOCK = threading.Lock()
_RAISED = threading.local()


def provide(backend: Backend, *, runtime: bool = True) -> None:
    """Register the global functions of a backend in Python, unless that has been done.

    ``byoc.runtime.<name>`` that is there already, of an executor in C++, is left alone; where the
    backend has a plugin for that and it was built, it is loaded and taken.

    Parameters
    ----------
    backend : Backend
    runtime : bool
        Whether that of the runtime too, or of the codegen alone.

    Raises
    ------
    OptionError
        When TVM or a plugin has registered ``relax.ext.<name>``.
    """
    import tvm_ffi

    with _LOCK:
        known = backend.name in _PROVIDED
        if not known:
            _check_free(backend, tvm_ffi)
        _PROVIDED[backend.name] = backend
        for name, make in _functions(backend, tvm_ffi).items():
            if name.startswith("byoc.runtime.") and not runtime:
                continue
            if tvm_ffi.get_global_func(name, allow_missing=True) is None:
                tvm_ffi.register_global_func(name, make())


def provide_runtime(name: str, package: str) -> None:
    """Register the global functions of the backend called `name`; payload modules ask for it.

    Raises
    ------
    BackendUnavailable
        When there is no such backend here, or it cannot run.
    """
    try:
        backend = _PROVIDED.get(name) or get_backend(name)
    except OptionError as error:
        raise BackendUnavailable(name, "runtime", str(error), missing_remedy(package)) from error
    backend.require("runtime")


def _functions(backend: Backend, tvm_ffi: Any) -> dict[str, Callable[[], Any]]:
    """What makes each of the global functions."""
    viewed = tvm_ffi.get_global_func("byoc.payload.viewed", allow_missing=True)

    def runtime() -> Any:
        native = plugin_build.find_runtime(backend.executor_plugin)
        return native or viewed(functools.partial(_make, backend.name))

    functions: dict[str, Callable[[], Any]] = {}
    if backend.codegen is not None:
        functions[f"relax.ext.{backend.name}"] = lambda: functools.partial(
            compile_regions, backend.name
        )
    if backend.runtime is not None and viewed is not None:  # else nothing can ask for it yet
        functions[f"byoc.runtime.{backend.name}"] = runtime
    return functions


def _check_free(backend: Backend, tvm_ffi: Any) -> None:
    name = f"relax.ext.{backend.name}"
    if backend.codegen is None or backend.name in _AT_IMPORT:
        return
    if tvm_ffi.get_global_func(name, allow_missing=True) is None:
        return
    raise OptionError(
        f"backend '{backend.name}' of module '{backend.codegen.__module__}' has a codegen, but "
        f"{name} is registered already, by TVM or a plugin; choose another name"
    )


def compile_regions(
    name: str,
    functions: Sequence[Any],
    options: Mapping[str, Any] | None,
    constant_names: Mapping[Any, str],
) -> list[Any]:
    """One payload module for each region: ``relax.ext.<name>``, of a backend that is provided."""
    with remembering():
        return _compile_regions(name, functions, options, constant_names)


@contextmanager
def remembering() -> Iterator[None]:
    """Keep what the block, a codegen, raises for `take_raised`."""
    try:
        yield
    except (ByocError, KeyboardInterrupt) as error:
        _RAISED.error = error
        raise


def take_raised() -> BaseException | None:
    """What a codegen of this thread raised last: TVM hands on its text, and a type of its own."""
    error: BaseException | None = getattr(_RAISED, "error", None)
    _RAISED.error = None
    return error


def _compile_regions(
    name: str,
    functions: Sequence[Any],
    options: Mapping[str, Any] | None,
    constant_names: Mapping[Any, str],
) -> list[Any]:
    import tvm_ffi

    backend = _PROVIDED[name]
    codegen = cast("Callable[..., object]", backend.codegen)
    create = tvm_ffi.get_global_func("byoc.payload.create")
    given = plain(options or {})
    chosen = backend.make_options(given) if backend.options is not None else given
    modules = []
    for function in functions:
        graph = read_graph(function, constant_names)
        who = f"the codegen of backend '{name}', region '{graph.name}',"
        made = _ask(who, codegen, graph, dict(chosen))
        payload = _payload(name, graph, made)
        names = [value.name for value in payload.constants]
        modules.append(create(name, backend.package, graph.name, payload.data, names))
    return modules


def _payload(backend: str, graph: Graph, made: object) -> Payload:
    who = f"the codegen of backend '{backend}' gave"
    payload = made if isinstance(made, Payload) else Payload(cast("bytes", made))
    if isinstance(payload.data, (bytearray, memoryview)):
        payload = Payload(bytes(payload.data), payload.constants)
    if not isinstance(payload.data, bytes):
        raise TypeError(
            f"{who} a {type(payload.data).__name__} for region '{graph.name}'; expected bytes, or "
            "a Payload"
        )
    known = {value.name for value in graph.constants}
    for value in payload.constants:
        if getattr(value, "name", None) not in known:
            raise TypeError(
                f"{who} a Payload with {getattr(value, 'name', value)!r} among its constants, "
                f"which is none of region '{graph.name}'; expected values of graph.constants"
            )
    return payload


def _make(name: str, payload: Any, constants: Sequence[Any]) -> Callable[..., None]:
    """The executor of one region; `payload` is a tensor over the module's own bytes."""
    import numpy as np
    from tvm_ffi import Function

    make = cast("Callable[..., object]", _PROVIDED[name].runtime)
    payload_bytes = np.from_dlpack(payload).tobytes()
    executor = _ask(f"the runtime of backend '{name}'", make, payload_bytes, tuple(constants))
    if not callable(executor):
        raise TypeError(
            f"the runtime of backend '{name}' gave a {type(executor).__name__}; expected a "
            "callable, the executor"
        )
    if isinstance(executor, Function):
        return executor

    who = f"the executor of backend '{name}'"

    def call(*tensors: Any) -> None:
        try:  # not `_ask`, which would cost each call more
            result = executor(*tensors)
        except BaseException as error:  # noqa: BLE001 - it may raise anything
            raise _failure(who, error) from None
        if result is not None:
            raise TypeError(
                f"{who} returned a {type(result).__name__}; it must "
                "write its results into its last arguments and return None"
            )

    return call


def _ask(who: str, function: Callable[..., object], *arguments: Any) -> object:
    """What a backend's own code gives."""
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise  # of the codegen: `take_raised` gives it to `byoc.build`
    except BaseException as error:  # noqa: BLE001 - it may raise anything
        raise _failure(who, error) from None


def _failure(who: str, error: BaseException) -> Exception:
    """`error` with all in its message: TVM hands on that and the traceback, but not the class."""
    if isinstance(error, ByocError):
        return error
    message = f"{who} failed: {type(error).__name__}: {reason(error)}"
    return RuntimeError(message).with_traceback(error.__traceback__)


def plain(value: Any) -> Any:
    """Options as they were before TVM held them."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return tuple(map(plain, value))
    return value
