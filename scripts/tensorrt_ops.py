#!/usr/bin/env python3
"""Which operators the TensorRT backend takes, of which dtypes, and how each is verified.

The table is made of the backend's own tables and of the cases in tests/backends/tensorrt; nothing
of it is written by hand.

Examples: python scripts/tensorrt_ops.py            print the page
          python scripts/tensorrt_ops.py --write    write docs/tensorrt_ops.md
          python scripts/tensorrt_ops.py --check    fail when that is not what it would write
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tensorrt_ops.md"
sys.path.insert(0, str(ROOT))  # the cases are not installed

INTRODUCTION = """\
# TensorRT: operators

**Nothing on this page was ever run on a GPU.** What each column means:

- *Operator*, and *from*: the pattern table is upstream's, with what the kit adds.
- *Dtypes* of the data. With `precision="fp16"` or `"bf16"`, float32 is computed in half, and what
  would overflow or cancel out in half in float32 between two casts.
- *Stays on the host*: examples of what the predicates refuse, each by what a test has as the reason
  against it. What holds for every operator is below the table.
- *Cases*: in tests/backends/tensorrt/cases_\\*.py, with attributes that are not the defaults. The
  finished `INetworkDefinition` of each is read back through NVIDIA's API and interpreted layer by
  layer with PyTorch; the result is PyTorch's, NumPy's or ONNX Runtime's for the operator, within
  5e-6 of the largest magnitude in float32, 2e-3 in half, 1e-2 in bfloat16. *n* marks operators with
  cases of a symbolic size, run at two sizes.
- *Engines*: TensorRT-RTX builds one of each case, on a CPU, for the compute capabilities
  {capabilities}. The builder's report of the graph that it compiled has the layers of the network
  and, over the whole range of the profile, the shapes that Relax derives.

{mutations} faults that are planted in the converters, one at a time, are all noticed by the cases.
"""

EVERYWHERE = """\
Every operator stays on the host, whatever it is: {reasons}.

## Models

{models}

Images are 224 x 224, tokens 16 of 64 features; one engine for batches of 1, 8 and 32 and for
compute capabilities 8.9 and 12.0; errors are the largest difference from PyTorch, or from ONNX
Runtime for the real models, relative to the largest magnitude. Weights are random and settled by
one batch: of MobileNetV2 PyTorch's own half precision is as far off.

`fp16` is no choice for every model: magika has sums of squares beyond 65504, the largest number of
half, and its `fp16` network is wrong. `byoc.calibrate`, `bf16` or float32 are what is left there.

Written by `scripts/tensorrt_ops.py --write`; a test compares.
"""

EVERY_REASON = (
    "of a shape whose rank is unknown, of more than 8 dimensions, of no elements, of constants "
    "only, of a tuple computed elsewhere, of a number in the place of a tensor, of another dtype "
    "than those above, or of several dtypes together"
)

# Measured once, on two cores of a Xeon without a GPU, with TensorRT-RTX 1.7.1.
MODELS = """\
| model | regions | MACs offloaded | error fp32, fp16 | engine fp32, fp16 | built in |
| --- | ---: | ---: | ---: | ---: | ---: |
| ResNet-18 (PyTorch, ONNX) | 1 | 100 % | 3e-6, 4e-3 | 47.2, 23.7 MB | 0.5 s |
| MobileNetV2 (PyTorch, ONNX) | 1 | 100 % | 1e-5, 2e-2 | 14.4, 7.3 MB | 0.6 s |
| BERT-like encoder (PyTorch, ONNX) | 1 | 100 % | 2e-7, 9e-4 | 1.6, 1.7 MB | 0.7 s |
| paraphrase-MiniLM-L3 (a wheel's ONNX) | 1 | 100 % | 4e-7, 1e-3 | 70.4, 36.4 MB | 0.6 s |
| openwakeword embedding (a wheel's ONNX) | 1 | 100 % | 4e-7, 6e-4 | 1.7, 1.0 MB | 0.3 s |"""


def rows() -> Iterator[list[str]]:
    """One for each pattern."""
    from tests.backends.tensorrt.cases import CASES
    from tests.backends.tensorrt.engines import CAPABILITIES
    from tvm_byoc_kit.backends.tensorrt.dtypes import operand_dtypes
    from tvm_byoc_kit.backends.tensorrt.patterns import EXTENSIONS

    refused = reasons_by_predicate()
    for pattern, group in sorted(CASES.items()):
        cases = list(group.values())
        operators = list(dict.fromkeys(op.name for op in cases[0].subject.graph.ops))
        name = f"relax.{pattern}" if f"relax.{pattern}" in operators else operators[-1]
        precisions = [p for p in ("fp32", "fp16", "bf16") if any(p in c.precisions for c in cases)]
        extension = pattern in EXTENSIONS or "quantize" in " ".join(operators)
        symbolic = ", n" if any(case.symbols for case in cases) else ""
        yield [
            " of ".join(f"`{operator}`" for operator in reversed(operators)),
            "the kit" if extension else "upstream",
            ", ".join(operand_dtypes(name)),
            "<br>".join(examples(name, refused)),
            f"{len(cases)}{symbolic}: {', '.join(precisions)}",
            ", ".join(f"SM{capability}" for capability in CAPABILITIES),
        ]


def predicates_of(name: str) -> list[Callable[..., Any]]:
    """Those that are asked of one operator alone."""
    from tvm_byoc_kit.backends.tensorrt import layers, moves, quantization

    tables: tuple[Mapping[str, Any], ...] = (
        layers.PREDICATES,
        moves.PREDICATES,
        quantization.PREDICATES,
    )
    return [predicate for table in tables for predicate in table.get(name, ())]


def reasons_by_predicate() -> dict[str, dict[str, str]]:
    """By predicate and operator what the tests of the predicates have against calls."""
    from tests.backends.test_tensorrt_predicates import REFUSED, calls

    found: dict[str, dict[str, str]] = {}
    for parameters, body, _reason in REFUSED.values():
        call = calls(module(parameters, body))[-1]
        for predicate in predicates_of(call.op.name):
            if reason := predicate(call):
                of_operator = found.setdefault(predicate.__qualname__, {})
                of_operator.setdefault(call.op.name, reason.removeprefix(f"{call.op.name}: "))
                break
    return found


def module(parameters: Mapping[str, Any], body: Callable[..., Any]) -> Any:
    """A module of one function, as the tests of the predicates describe it."""
    import tvm
    from tvm import relax

    named = {dim for dims, _ in parameters.values() for dim in dims if isinstance(dim, str)}
    symbols = {name: tvm.tirx.Var(name, "int64") for name in named}
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(name, relax.TensorType([symbols.get(dim, dim) for dim in dims], dtype))
        for name, (dims, dtype) in parameters.items()
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(body(*variables))
        builder.emit_func_output(result)
    return builder.finalize()


def examples(name: str, refused: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Of its own where there are, else of another operator that is asked the same."""
    found = []
    for predicate in predicates_of(name):
        known = refused.get(predicate.__qualname__, {})
        if known:
            found.append(known.get(name) or next(iter(known.values())))
    return found


def page() -> str:
    """All of it, as Markdown."""
    from tests.backends.tensorrt.engines import CAPABILITIES
    from tests.backends.tensorrt.mutations import MUTATIONS

    header = ["operator", "from", "dtypes", "stays on the host", "cases", "engines"]
    lines = [header, ["---"] * len(header), *rows()]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    introduction = INTRODUCTION.format(
        capabilities=" and ".join(f"{n // 10}.{n % 10}" for n in CAPABILITIES),
        mutations=len(MUTATIONS),
    )
    return f"{introduction}\n{table}\n\n{EVERYWHERE.format(models=MODELS, reasons=EVERY_REASON)}"


def main() -> None:
    """Print, write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--check", action="store_true", help="fail when it is not current")
    options = parser.parse_args()
    text = page()
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    elif not options.check:
        print(text, end="")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE.relative_to(ROOT)} is not current: run scripts/tensorrt_ops.py --write")


if __name__ == "__main__":
    main()
