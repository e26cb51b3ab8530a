"""What is asked of the model: the phase, the length of the sequences and how many at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from topology.errors import InputError

__all__ = ["Workload"]

LONGEST_CONTEXT = 1_000_000_000


@dataclass(frozen=True)
class Workload:
    """A decode workload.

    Attributes
    ----------
    context:
        Tokens already in each sequence (its KV cache), at the step that is costed.
    batch:
        Concurrent sequences per GPU in use; 0 means "the largest that fits".
    kv_dtype:
        Format of the KV cache (:mod:`cost.dtypes`).
    """

    context: int = 4096
    batch: int = 0
    kv_dtype: str = "bf16"
    phase: str = "decode"

    def __post_init__(self) -> None:
        if self.phase != "decode":
            raise InputError(
                f"--phase {self.phase}: only decode is modelled in this version; use --phase decode."
            )
        for name, value, least, most in (
            ("--context", self.context, 1, LONGEST_CONTEXT),
            ("--batch", self.batch, 0, 10**9),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise InputError(f"{name} {value}: expected a whole number from {least} to {most}.")

    def with_batch(self, batch: int) -> Workload:
        """Return the same workload at another batch."""
        return replace(self, batch=batch)
