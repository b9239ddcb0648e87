"""Options: `byoc.build(parts, options={"precision": "bfloat16"})`."""

from dataclasses import dataclass

import tvm_byoc_kit as byoc

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Options:
    """`precision` is what factors are cut to before they are multiplied."""

    precision: str = "float32"

    def __post_init__(self):
        if self.precision not in PRECISIONS:
            raise byoc.OptionError(
                f"my_backend option precision={self.precision!r}: "
                f"expected one of {', '.join(PRECISIONS)}"
            )
