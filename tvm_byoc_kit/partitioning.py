"""Partition: which ops go to the backend."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import Backend, get_backend
from tvm_byoc_kit.coverage import Coverage
from tvm_byoc_kit.coverage_reader import read_coverage
from tvm_byoc_kit.fusing import fuse, fuse_and_merge
from tvm_byoc_kit.model import ImportedModel, as_model
from tvm_byoc_kit.op_names import OpTag, tag_of, tag_ops
from tvm_byoc_kit.pattern_ops import possible
from tvm_byoc_kit.policy import PartitionPolicy, Settled, as_policy, require_no_host_ops, settle
from tvm_byoc_kit.prepare_report import count_ops
from tvm_byoc_kit.reasons import explainer
from tvm_byoc_kit.region_names import name_regions
from tvm_byoc_kit.rewriting import is_relax_function, op_name
from tvm_byoc_kit.symbol_operands import has_symbol_operands, hide_symbols, show_symbols

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tvm import IRModule
    from tvm.relax import Call, Var

__all__ = ["Offload", "Partition", "as_prepared", "partition"]


@dataclass(frozen=True, repr=False)
class Partition:
    """A partitioned model.

    Parameters
    ----------
    mod : tvm.IRModule
        Regions are the functions with the attribute ``Codegen``.
    backend : Backend
    model : ImportedModel
        What was partitioned.
    policy : PartitionPolicy, optional
        Under which it was.
    refused_by_policy : mapping of OpTag to str
        The ops that the backend takes and the policy does not, with the reason.
    """

    mod: IRModule
    backend: Backend
    model: ImportedModel
    policy: PartitionPolicy | None = None
    refused_by_policy: Mapping[OpTag, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """A line: a module is printed by its own ``show``."""
        origin = self.model.origin or "a module"
        policy = "" if self.policy is None else f", {self.policy}"
        return f"<Partition of {origin} for {self.backend.name}{policy}>"

    @functools.cached_property
    def coverage(self) -> Coverage:
        """Every op, and the region that took it, or the reason why none did."""
        original = self.model.mod
        return read_coverage(
            self.mod,
            original=None if original is self.mod else original,
            backend=self.backend.name,
            model=self.model.origin,
            explain=explainer(self.backend, original, self.refused_by_policy),
        )


def partition(
    model: Any,
    backend: str | Backend,
    *,
    policy: PartitionPolicy | Mapping[str, Any] | None = None,
    bind_constants: bool | None = None,
    annotate_codegen: bool | None = None,
    prepare: bool | None = None,
) -> Partition:
    """Offload to `backend` what its patterns match.

    Parameters
    ----------
    model : ImportedModel, tvm.IRModule, or anything that `load_model` takes alone
    backend : str or Backend
    policy : PartitionPolicy or mapping, optional
        What stays on the host although the backend could take it. None: nothing does.
    bind_constants : bool, optional
        True: weights become part of the region; False: they stay arguments that the host gives.
        None: the backend's own default.
    annotate_codegen : bool, optional
        True: every match is a region of its own; False: neighbouring matches are merged.
        None: the backend's own default.
    prepare : bool, optional
        Whether to run `byoc.prepare` for `backend` first. None: yes, unless that has been done,
        or `model` is a plain IRModule, which is taken as it is.

    Returns
    -------
    Partition
        Its ``model`` is the prepared one; ``model.report`` says what was done to it.

    Raises
    ------
    OptionError
        For a policy that is not valid, or that names an op which `model` does not have.
    ModelError
        When the policy is strict and an op stays on the host.

    Warns
    -----
    UserWarning
        For functions that upstream's merging cannot handle (with ``If``, ``MatchCast``, or calls
        of other or external functions): there every match stays a region of its own.
    """
    chosen = get_backend(backend)
    rules = as_policy(policy)
    chosen.require("partition")
    imported = as_prepared(model, chosen, prepare)
    offload = Offload(imported, chosen, bind_constants, annotate_codegen)
    offload.warn(stacklevel=3)
    parts = offload.under(rules)
    if rules is not None and rules.strict:
        require_no_host_ops(parts.coverage)
    return parts


class Offload:
    """Partitions one prepared model, as often as a policy needs.

    Parameters
    ----------
    model : ImportedModel
    backend : Backend
    bind_constants, annotate_codegen : bool, optional
        As `partition` takes them.
    """

    def __init__(
        self,
        model: ImportedModel,
        backend: Backend,
        bind_constants: bool | None = None,
        annotate_codegen: bool | None = None,
    ) -> None:
        self.model = model
        self.backend = backend
        self._bind = backend.bind_constants if bind_constants is None else bind_constants
        self._annotate = backend.annotate_codegen if annotate_codegen is None else annotate_codegen
        # A backend's own partitioner has no choices but the backend's own.
        chosen = (self._bind, self._annotate)
        own = chosen == (backend.bind_constants, backend.annotate_codegen)
        self._partitioner = backend.partitioner if own else None
        self._done: dict[frozenset[OpTag], tuple[IRModule, Coverage]] = {}

    @functools.cached_property
    def _tagged(self) -> IRModule:
        return tag_ops(self.model.mod)

    @functools.cached_property
    def _ops(self) -> Collection[str]:
        return count_ops(self.model.mod).keys()

    @functools.cached_property
    def _obstacles(self) -> dict[str, str | None]:
        """The functions to merge, each with what in it MergeCompositeFunctions fails on."""
        if self._annotate or self.backend.patterns is None:
            return {}
        functions = self.model.mod.functions_items()
        return {var.name_hint: _obstacle(f) for var, f in functions if _is_host_function(f)}

    def warn(self, stacklevel: int = 2) -> None:
        """Warn of the functions in which neighbouring matches are not merged."""
        for name, obstacle in self._obstacles.items():
            if obstacle is not None:
                warnings.warn(
                    f"function `{name}` {obstacle}, which MergeCompositeFunctions cannot handle: "
                    "each match there is a region of its own",
                    stacklevel=stacklevel,
                )

    def under(self, policy: PartitionPolicy | None) -> Partition:
        """The partition under `policy`, without regard to ``strict``."""
        if policy is None:  # without reading what the coverage is
            return Partition(self._partition(frozenset()), self.backend, self.model)
        settled = self.settled(policy)
        return Partition(settled.mod, self.backend, self.model, policy, settled.refused)

    def settled(self, policy: PartitionPolicy) -> Settled:
        """What `policy` makes of the partition, without reasons."""
        return settle(policy, self._without)

    def _without(self, excluded: frozenset[OpTag]) -> tuple[IRModule, Coverage]:
        """The partitioned module in which the `excluded` ops are on the host, and its coverage."""
        if excluded not in self._done:
            mod = self._partition(excluded)
            self._done[excluded] = mod, read_coverage(mod, original=self.model.mod)
        return self._done[excluded]

    def _partition(self, excluded: frozenset[OpTag]) -> IRModule:
        if self.backend.patterns is None:
            return self.model.mod

        def is_excluded(_var: Var, call: Call) -> bool:
            return tag_of(call) in excluded

        patterns = possible(
            self.backend.guarded_patterns(is_excluded if excluded else None), self._ops
        )
        own = self._partitioner
        whole: Callable[[IRModule], IRModule] | None = None
        if own is not None:
            whole = lambda mod: own(mod, patterns)  # noqa: E731
        if self._annotate:
            each = whole or functools.partial(fuse, patterns=patterns, bind_constants=self._bind)
            return name_regions(each(self._tagged), self._tagged)
        merge = whole or functools.partial(
            fuse_and_merge, patterns=patterns, bind_constants=self._bind
        )
        result = self._tagged
        for name, obstacle in self._obstacles.items():
            if obstacle is None:
                alone = _isolated(self._tagged, self._tagged[name])
                merged = name_regions(_merged(alone, merge), result)
                result = _put_back(result, merged, name)
            else:
                result = name_regions(fuse(result, patterns, self._bind, [name]), result)
        return result


def as_prepared(model: Any, backend: Backend, wanted: bool | None) -> ImportedModel:
    """`model`, prepared for `backend` if that is `wanted`, or open and of use."""
    from tvm.ir import IRModule

    from tvm_byoc_kit.preparation import prepare

    imported = as_model(model)
    done = imported.report is not None and imported.report.backend == backend.name
    if wanted is None:
        wanted = not done and not isinstance(model, IRModule)
    return prepare(imported, backend) if wanted else imported


def _is_host_function(function: Any) -> bool:
    attrs = function.attrs.keys() if function.attrs else ()
    return is_relax_function(function) and not {"Codegen", "Composite"} & set(attrs)


def _obstacle(function: Any) -> str | None:
    """What in `function` MergeCompositeFunctions fails on, as the end of a sentence."""
    from tvm import relax

    found: list[str] = []

    def look(expr: Any) -> None:
        if isinstance(expr, relax.If):
            found.append("has an `If`")
        elif isinstance(expr, relax.Function) and not expr.same_as(function):
            found.append("has a function inside")
        elif isinstance(expr, relax.Call):
            found.extend(_obstacles_of_call(expr))
        elif isinstance(expr, relax.SeqExpr):
            bindings = [binding for block in expr.blocks for binding in block.bindings]
            if any(isinstance(binding, relax.MatchCast) for binding in bindings):
                found.append("has a `MatchCast`")

    relax.analysis.post_order_visit(function, look)
    return found[0] if found else None


def _obstacles_of_call(call: Call) -> Iterator[str]:
    from tvm import relax
    from tvm.ir import GlobalVar

    if isinstance(call.op, GlobalVar):
        yield f"calls the function `{call.op.name_hint}`"
    for operand in call.args:
        if isinstance(operand, relax.ExternFunc):
            yield f"calls the external function `{operand.global_symbol}`"
        elif type(operand).__name__ in ("StringImm", "DataTypeImm"):
            yield f"calls {op_name(call)} with a string"


def _merged(alone: IRModule, merge: Callable[[IRModule], IRModule]) -> IRModule:
    if not has_symbol_operands(alone["main"]):
        return merge(alone)
    return show_symbols(merge(hide_symbols(alone)))


def _isolated(mod: IRModule, function: Any) -> IRModule:
    """A module with `function` as ``main``, and everything that is no Relax function."""
    import tvm
    from tvm import relax

    others = {
        var: other for var, other in mod.functions_items() if not isinstance(other, relax.Function)
    }
    renamed = function.with_attr("global_symbol", "main")
    return tvm.IRModule({tvm.ir.GlobalVar("main"): renamed, **others}, attrs=mod.attrs)


def _put_back(result: IRModule, alone: IRModule, name: str) -> IRModule:
    """`result` with `name` replaced by the ``main`` of `alone`, and its regions added."""
    from tvm import IRModule

    functions = dict(result.functions.items())
    target = result.get_global_var(name)
    functions[target] = _with_symbol_of(alone["main"], functions[target])
    functions |= {
        var: function
        for var, function in alone.functions.items()
        if var.name_hint != "main" and is_relax_function(function)
    }
    return IRModule(functions, attrs=result.attrs, global_infos=result.global_infos)


def _with_symbol_of(function: Any, original: Any) -> Any:
    if original.attrs and "global_symbol" in original.attrs:
        return function.with_attr("global_symbol", original.attrs["global_symbol"])
    return function.without_attr("global_symbol")
