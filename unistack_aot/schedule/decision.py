"""Records of choices: what was chosen, what else was tried, which number or property decided."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice. `subject` names the kernel or value, `tried` the alternatives with their figure."""

    kind: str
    subject: str
    chosen: str
    because: str
    tried: tuple[str, ...] = ()

    def __str__(self) -> str:
        tried = f"; tried {', '.join(self.tried)}" if self.tried else ""
        return f"{self.kind} {self.subject}: {self.chosen} ({self.because}{tried})"
