"""OpenVINO: Intel's inference library, on any x86 or ARM CPU, and Intel's GPUs and NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.openvino.options import OpenVINOOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tvm.relax import Call
    from tvm.relax.transform import FusionPattern

    from tvm_byoc_kit.graph import Graph
    from tvm_byoc_kit.payload import Payload

__all__ = ["BACKEND", "OpenVINOOptions", "refusal"]

PREFIX = "openvino."


def patterns() -> list[FusionPattern]:
    """One for each operator of the table and number of operands; OpenVINO fuses them itself."""
    from tvm.relax.dpl import is_op, wildcard
    from tvm.relax.transform import FusionPattern

    from tvm_byoc_kit.backends.openvino.ops import TABLE

    return [
        FusionPattern(
            PREFIX + name.removeprefix("relax."), is_op(name)(*(wildcard() for _ in range(count)))
        )
        for name, entry in TABLE.items()
        for count in entry.operands
    ]


def refusal(call: Call) -> str | None:
    """Why OpenVINO cannot run `call`, or None when it can."""
    from tvm_byoc_kit.backends.openvino import predicates
    from tvm_byoc_kit.backends.openvino.ops import TABLE
    from tvm_byoc_kit.backends.operands import computed_tuple
    from tvm_byoc_kit.predicates import first_reason

    entry = TABLE.get(str(call.op.name))
    if entry is None:
        return None
    always = (computed_tuple, predicates.known_tensors, predicates.narrow_constants)
    return first_reason((*always, *entry.predicates), call)


def codegen(graph: Graph, options: Mapping[str, Any]) -> Payload:
    """The payload of a region, with its large constants beside it."""
    from tvm_byoc_kit.backends.openvino import conversion

    return conversion.codegen(graph, options)


def runtime(payload: bytes, constants: Sequence[Any] = ()) -> Any:
    """The executor of a payload."""
    from tvm_byoc_kit.backends.openvino import executor

    return executor.runtime(payload, constants)


BACKEND = Backend(
    name="openvino",
    summary="OpenVINO: Intel's inference library, on CPUs, and Intel's GPUs and NPUs",
    patterns=patterns,
    refusal=refusal,
    bind_constants=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("openvino",),
        "runtime": ("openvino",),
    },
    options=OpenVINOOptions,
    codegen=codegen,
    runtime=runtime,
    package="tvm_byoc_kit[openvino]",
    executor_plugin="openvino",
)
