"""What a backend is, and the registry of the backends known by name."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, get_args

from tvm_byoc_kit.availability import Status, probe
from tvm_byoc_kit.errors import OptionError, did_you_mean
from tvm_byoc_kit.pattern_table import make_patterns
from tvm_byoc_kit.payload import PAYLOAD_KIND
from tvm_byoc_kit.predicates import guarded

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.relax import Call
    from tvm.relax.transform import FusionPattern

    from tvm_byoc_kit.graph import Graph
    from tvm_byoc_kit.model import ImportedModel
    from tvm_byoc_kit.pattern_table import PatternTable
    from tvm_byoc_kit.payload import Payload
    from tvm_byoc_kit.predicates import Exclusion

__all__ = ["STEPS", "Backend", "Step", "get_backend", "list_backends"]

Step = Literal["partition", "codegen", "runtime", "device"]
STEPS: tuple[Step, ...] = get_args(Step)

ENTRY_POINT_GROUP = "tvm_byoc_kit.backends"


@dataclass(frozen=True)
class Backend:
    """What a region can be offloaded to.

    Parameters
    ----------
    name : str
        The name in ``relax.ext.<name>`` and in the functions' ``Codegen`` attribute; an identifier.
    summary : str
        One line for tables.
    patterns : sequence of Pattern, or callable, optional
        Highest priority first. An entry is a `Pattern` or the tuple of what makes one, such as
        ``("conv2d_relu", ["relax.nn.conv2d", "relax.nn.relu"])``. A callable gives TVM's
        ``FusionPattern``s. None: nothing is partitioned.
    refusal : callable, optional
        Gets a call of an operator that a pattern names; gives the reason why the backend cannot
        run it, or None. What is refused stays on the host, and the coverage report says why.
    partitioner : callable, optional
        Partitions a module with the patterns it is given, where `FuseOpsByPattern` and
        `MergeCompositeFunctions` are not all that the backend needs.
    bind_constants : bool
        Whether weights become part of the region (True) or stay with the host, which gives them to
        the region as inputs (False).
    annotate_codegen : bool
        True: every match is a region of its own. False: neighbouring matches are merged.
    requires : mapping of step to probe names
        What each step needs beyond the steps before it, as `availability.probe` names it.
    options : type, optional
        Frozen dataclass of the codegen's options, validated at construction.
    target : str
        Target of what stays on the host.
    loaders : tuple of str
        Kinds of the runtime modules that an artifact of this backend holds.
    layout : mapping of op name to layouts, optional
        Which layouts `prepare` converts to, as TVM's ``ConvertLayout`` takes them: of the data,
        the weights and, if wanted, the result. None: ops stay as they are.
    signed_bytes : bool
        Whether it computes in 8 bits what stands between quantize and dequantize ops, with signed
        bytes around 0. `prepare` then leaves constant weights as the bytes that they are stored as,
        instead of computing floats of them, and writes pairs of quantize and dequantize with
        another zero point in a form that the backend has.
    codegen : callable, optional
        Compiles a region: gets its `Graph` and the options as a dict, and gives the bytes that
        `runtime` is made from, or a `Payload` when that shall get constants too. None: TVM or a
        plugin registers ``relax.ext.<name>``.
    runtime : callable, optional
        Makes what runs a region: gets these bytes and a tuple of the constants, once for each
        region, at the first call; gives a callable, the executor, which gets the tensors of a
        call, first the inputs and then the outputs that it fills, and returns None. They are
        ``tvm_ffi.Tensor``, which NumPy and torch read with ``from_dlpack``; a shape parameter is a
        ``tvm_ffi.Shape``. Several threads may call one executor at once. None: TVM, a plugin or an
        executor in C++ registers what is needed.
    ambient : callable, optional
        Gives fields of `options` that stand around the call, such as in environment variables; a
        field that is given goes before.
    complete : callable, optional
        Gets the options as a dict and the `ImportedModel` that is built; gives the options that the
        codegen gets and the artifact's manifest keeps. For what depends on the model or the
        machine, and for refusing early.
    admit : callable, optional
        Gets the payload of a region that was loaded, before its first call; raises a `ByocError`
        where it cannot run on this machine.
    gpu_memory : bool
        Whether the runtime takes tensors in a GPU's memory too, so that `target` may be a GPU.
    profiles : bool
        Whether one region runs open dimensions in several ranges, which its option ``profiles``
        gives: `compile` then makes these of `Buckets`, and builds the model once.
    package : str
        What ``pip install`` adds the backend with, for messages where it is missing.
    executor_plugin : str
        Of `plugin_build.BUILDABLE`: takes the place of `runtime` where it has been built.
    """

    name: str
    summary: str
    patterns: Callable[[], list[FusionPattern]] | PatternTable | None = None
    refusal: Callable[[Call], str | None] | None = None
    partitioner: Callable[[IRModule, list[FusionPattern]], IRModule] | None = None
    bind_constants: bool = False
    annotate_codegen: bool = False
    requires: Mapping[Step, tuple[str, ...]] = field(default_factory=dict)
    options: type | None = None
    target: str = "llvm"
    loaders: tuple[str, ...] = ()
    layout: Mapping[str, tuple[str, ...]] | None = None
    signed_bytes: bool = False
    codegen: Callable[[Graph, dict[str, Any]], bytes | Payload] | None = None
    runtime: Callable[[bytes, tuple[Any, ...]], Callable[..., None]] | None = None
    ambient: Callable[[], Mapping[str, Any]] | None = None
    complete: Callable[[dict[str, Any], ImportedModel], dict[str, Any]] | None = None
    admit: Callable[[bytes], None] | None = None
    gpu_memory: bool = False
    profiles: bool = False
    package: str = ""
    executor_plugin: str = ""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise OptionError(
                f"backend name {self.name!r} is no identifier, and it becomes part of the names of "
                f"global functions; for instance '{re.sub(r'[^0-9a-zA-Z_]', '_', self.name)}'"
            )
        if self.codegen is not None:
            object.__setattr__(self, "loaders", self.loaders or (PAYLOAD_KIND,))
            object.__setattr__(self, "requires", _with_core_plugin(self.requires))

    def fusion_patterns(self) -> list[FusionPattern]:
        """The patterns as TVM takes them, highest priority first."""
        if self.patterns is None or callable(self.patterns):
            return self.patterns() if self.patterns else []
        return make_patterns(self.name, self.patterns)

    def guarded_patterns(self, excluded: Exclusion | None = None) -> list[FusionPattern]:
        """The patterns, which here match nothing that is refused, or `excluded`."""
        return guarded(self.fusion_patterns(), self.refusal, excluded)

    def check(self, step: Step = "runtime") -> Status:
        """Whether `step`, and every step before it, can be done on this machine.

        Returns
        -------
        Status
            The first probe that fails, or a truthy status named after the backend.
        """
        if step not in STEPS:
            raise OptionError(f"unknown step '{step}'; expected one of {', '.join(STEPS)}")
        for earlier in STEPS[: STEPS.index(step) + 1]:
            for name in self.requires.get(earlier, ()):
                status = probe(name)
                if not status:
                    return status
        return Status(name=self.name, ok=True, detail="available", remedy="")

    def require(self, step: Step) -> None:
        """Raise `BackendUnavailable` with the reason and the remedy unless `step` can be done.

        When it can, a backend in Python has its global functions registered: that of the codegen,
        since what follows may be TVM's own RunCodegen, and beyond partitioning that of the runtime.
        """
        self.check(step).require(self.name, step)
        if self.codegen is not None or self.runtime is not None:
            from tvm_byoc_kit.python_codegen import provide

            provide(self, runtime=step != "partition")

    def make_options(self, options: object) -> dict[str, Any]:
        """Validate `options` (None, a mapping, or the backend's own dataclass) into a dict.

        Raises
        ------
        OptionError
            For options that the backend does not have.
        """
        around = self.ambient() if self.ambient is not None else {}
        if options is None and not around:
            return {}
        options = {} if options is None else options
        if self.options is None:
            raise OptionError(f"backend '{self.name}' has no options; pass options=None")
        if isinstance(options, Mapping):
            known = tuple(self.options.__dataclass_fields__)  # type: ignore[attr-defined]
            for key in options:
                if key not in known:
                    raise OptionError(
                        f"backend '{self.name}' has no option '{key}'{did_you_mean(key, known)}; "
                        f"options: {', '.join(known)}"
                    )
            options = self.options(**{**around, **options})
        if not isinstance(options, self.options):
            raise OptionError(
                f"options of backend '{self.name}' must be a dict or a {self.options.__name__}, "
                f"not {type(options).__name__}"
            )
        return dict(vars(options))


def _with_core_plugin(requires: Mapping[Step, tuple[str, ...]]) -> dict[Step, tuple[str, ...]]:
    """What a backend in Python requires, with what the kit needs for it."""
    codegen = ("plugin:core", *requires.get("codegen", ()))
    return {"partition": ("tvm",), **requires, "codegen": tuple(dict.fromkeys(codegen))}


_BUILTIN = ("example_npu", "openvino", "tensorrt", "cutlass", "cublas", "cudnn", "cuda", "llvm")


def _installed() -> dict[str, EntryPoint]:
    """Backends that other packages offer, by name."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


# Backends of this process, by name; `register_backend` fills it.
REGISTERED: dict[str, Backend] = {}


def owner(name: str) -> str | None:
    """Who gave the backend called `name`, for messages; None when there is none."""
    if name in _BUILTIN:
        return "tvm_byoc_kit"
    if name in REGISTERED:
        made = REGISTERED[name].codegen or REGISTERED[name].runtime
        return f"byoc.register_backend, with code of module '{getattr(made, '__module__', '?')}'"
    point = _installed().get(name)
    return f"the installed package of {point.value}" if point is not None else None


def _names() -> tuple[str, ...]:
    return tuple(dict.fromkeys([*_BUILTIN, *REGISTERED, *_installed()]))


def get_backend(name: str | Backend) -> Backend:
    """The backend called `name`.

    Parameters
    ----------
    name : str or Backend
        A :class:`Backend` is given back as it is.

    Raises
    ------
    OptionError
        When there is none of that name; the message lists those there are.
    """
    if isinstance(name, Backend):
        return name
    if name in _BUILTIN:
        backend = importlib.import_module(f"tvm_byoc_kit.backends.{name}").BACKEND
    elif name in REGISTERED:
        backend = REGISTERED[name]
    else:
        point = _installed().get(str(name))
        if point is None:
            known = _names()
            raise OptionError(
                f"unknown backend '{name}'{did_you_mean(name, known)}; known: {', '.join(known)}"
            )
        backend = _load(name, point)
        if isinstance(backend, Backend) and backend.name != name:
            raise OptionError(
                f"entry point '{name}' of {ENTRY_POINT_GROUP} gives backend '{backend.name}' "
                f"({point.value}), which no other process would find; give both one name"
            )
    if not isinstance(backend, Backend):
        raise OptionError(f"entry point '{name}' of {ENTRY_POINT_GROUP} is not a Backend")
    return backend


def _load(name: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # another package's code: it may raise anything
        raise OptionError(
            f"backend '{name}' of {point.value} cannot be imported: "
            f"{type(error).__name__}: {error}; repair or uninstall that package"
        ) from error


def list_backends() -> tuple[Backend, ...]:
    """All known backends, the kit's own first; one that cannot be imported is left out.

    Warns
    -----
    UserWarning
        For a backend of another package that cannot be imported.
    """
    found = (_get_or_warn(name) for name in _names())
    return tuple(backend for backend in found if backend is not None)


def _get_or_warn(name: str) -> Backend | None:
    try:
        return get_backend(name)
    except OptionError as error:
        warnings.warn(str(error), stacklevel=4)
        return None
