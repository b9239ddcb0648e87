"""What a probe answers: is one thing here, and if not, why not and what adds it."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_byoc_kit.errors import BackendUnavailable

__all__ = ["Status"]


@dataclass(frozen=True)
class Status:
    """The state of one thing that a backend may need; true when the thing is there.

    Parameters
    ----------
    name : str
        Name of the probe, for instance ``"compiler"`` or ``"codegen:tensorrt"``.
    ok : bool
        Whether the thing is there and usable.
    detail : str
        Version and place when it is there, else the reason why it is not.
    remedy : str
        Empty when it is there, else the command or action that adds it.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""

    def __bool__(self) -> bool:
        return self.ok

    def require(self, backend: str, step: str) -> None:
        """Raise `BackendUnavailable` where `backend` lacks this for `step`."""
        if not self:
            raise BackendUnavailable(backend, step, self.detail, self.remedy)

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}: {self.detail or 'ok'}"
        return f"{self.name}: {self.detail}. To add it: {self.remedy}"
