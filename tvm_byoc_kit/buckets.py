"""What is said of a dimension that stays open: the sizes to be fast at, and what of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

from tvm_byoc_kit.errors import OptionError

__all__ = ["Buckets", "Profile", "Sizes"]


@dataclass(frozen=True, init=False, repr=False)
class Buckets:
    """Static builds of a model for some sizes of a dimension, in one artifact.

    A size between them is padded to a larger one, and what belongs to the padding is cut off the
    results. Along the batch, rows may also be split among several builds. What costs least is done,
    as it was measured when the artifact was built, or by `Executable.measure`.

    Parameters
    ----------
    *sizes : int
        At least one, each at least 1; they are kept in ascending order.
    fallback : {None, "symbolic"}
        ``symbolic``: one more build with the dimension open, for the sizes that no bucket serves
        well; which one a call takes is decided by measured costs.
    pad : bool, or mapping of input name to number
        True: to pad is allowed, and the model is refused unless its rows along the dimension are
        independent of each other. False: only the exact sizes take a bucket. A mapping says that
        the model masks what is padded by these inputs, with what they are filled with there
        (``{"attention_mask": 0}``); that is tried at build, and refused if results change.

    Raises
    ------
    OptionError
        For sizes that are none.
    """

    sizes: tuple[int, ...]
    fallback: Literal["symbolic"] | None = None
    pad: bool | Mapping[str, float] = True

    def __init__(
        self,
        *sizes: int,
        fallback: Literal["symbolic"] | None = None,
        pad: bool | Mapping[str, float] = True,
    ) -> None:
        if not sizes or not all(map(_is_size, sizes)):
            raise OptionError(
                f"Buckets{sizes!r}: expected sizes of at least 1, such as Buckets(1, 4, 8, 16)"
            )
        if fallback not in (None, "symbolic"):
            raise OptionError(f"Buckets: fallback is {fallback!r}; expected None or 'symbolic'")
        if not isinstance(pad, (bool, Mapping)):
            raise OptionError(
                f"Buckets: pad is {pad!r}; expected True, False, or what the inputs that mask the "
                "padding are filled with, such as {'attention_mask': 0}"
            )
        object.__setattr__(self, "sizes", tuple(sorted(set(map(int, sizes)))))
        object.__setattr__(self, "fallback", fallback)
        object.__setattr__(self, "pad", pad)

    def __repr__(self) -> str:
        options = {"fallback": (self.fallback, None), "pad": (self.pad, True)}
        given = (f"{key}={own!r}" for key, (own, usual) in options.items() if own != usual)
        return f"Buckets({', '.join((*map(str, self.sizes), *given))})"


@dataclass(frozen=True)
class Profile:
    """One build with a dimension open between two sizes.

    TensorRT makes an optimization profile of it; elsewhere the dimension is symbolic. A call
    outside the bounds is refused.

    Parameters
    ----------
    min, opt, max : int
        Smallest size, the one to be fast at, and largest.

    Raises
    ------
    OptionError
        For sizes that are none, or not in order.
    """

    min: int
    opt: int
    max: int

    def __post_init__(self) -> None:
        sizes = (self.min, self.opt, self.max)
        if not all(map(_is_size, sizes)) or list(sizes) != sorted(sizes):
            raise OptionError(
                f"Profile{sizes!r}: expected the smallest, best and largest size in order, such as "
                "Profile(1, 8, 32)"
            )
        for name, size in zip(("min", "opt", "max"), sizes, strict=True):
            object.__setattr__(self, name, int(size))


#: By dimension's name.
Sizes = Mapping[str, "Buckets | Profile"]


def _is_size(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
