"""The cases of all converters, by pattern."""

from __future__ import annotations

from . import (
    cases_elementwise,
    cases_layouts,
    cases_moving,
    cases_parameters,
    cases_quantized,
    cases_reducing,
    cases_windows,
)
from .case import Cases

CASES: Cases = {
    **cases_elementwise.CASES,
    **cases_windows.CASES,
    **cases_reducing.CASES,
    **cases_moving.CASES,
    **cases_quantized.CASES,
}
for _more in (cases_layouts.CASES, cases_parameters.CASES):
    CASES |= {name: {**CASES[name], **group} for name, group in _more.items()}
