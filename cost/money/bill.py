"""A bill: cost and power of some GPUs, busy or idle, and of their tokens.

The classes are what commands print and files hold, field by field (:meth:`Bill.to_dict`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.quantity import require_number
from topology.base.figures import Evidence, EvidenceLabel, WrittenFigure, weakest

HOURS_PER_YEAR = 8760.0
"""Of 365 days."""
_SECONDS_PER_HOUR = 3600.0

Batch = TypeVar("Batch", float, "NDArray[np.float64]")
"""A number, or an array of them: answers have its shape."""


@dataclass(frozen=True)
class BillPart:
    """What is paid for: GPUs of a kind, or a part of the network.

    Attributes
    ----------
    name, count:
        The GPU or part, and how many.
    usd_per_hour, power_w:
        Of one; null where there is no figure.
    all_in:
        Whether the power has its share of host and cooling.
    """

    name: str
    count: float
    usd_per_hour: WrittenFigure | None
    power_w: WrittenFigure | None
    all_in: bool = True


class NetworkBillPart(BillPart):
    """Switches or optics: a figure that one lacks is in no sum, and spoils none."""


class MemoryBillPart(NetworkBillPart):
    """Memory that keeps caches of prompts."""


@dataclass(frozen=True)
class Bill:
    """Cost and power; unknown figures are null, and ``missing`` names them.

    Attributes
    ----------
    gpus:
        GPUs that are paid for.
    usd_per_hour, usd_per_year:
        Of all parts; a year has 8,760 hours.
    price_basis, price_kind:
        Whose price of a GPU-hour, and the weakest kind of figure behind it.
    power_w, power_kind:
        Of all parts, and the weakest kind of figure behind it.
    parts:
        GPUs by kind, and the network where it is counted.
    missing:
        What has no figure, and how to give it.
    """

    gpus: int
    usd_per_hour: float | None
    usd_per_year: float | None
    price_basis: str
    price_kind: EvidenceLabel | None
    power_w: float | None
    power_kind: EvidenceLabel | None
    parts: tuple[BillPart, ...]
    missing: tuple[str, ...]

    @classmethod
    def of(cls, basis: str, parts: Iterable[BillPart], missing: Iterable[str] = ()) -> Bill:
        """Return the bill of ``parts``, equal ones added up; GPUs come before the network."""
        counts: dict[BillPart, float] = {}
        for part in parts:
            kind = replace(part, count=1)
            counts[kind] = counts.get(kind, 0) + part.count
        lines = [replace(kind, count=count) for kind, count in counts.items()]
        lines.sort(key=lambda part: isinstance(part, NetworkBillPart))
        gpus = [part for part in lines if not isinstance(part, NetworkBillPart)]
        priced = all(part.usd_per_hour is not None for part in gpus)
        powered = all(part.power_w is not None for part in gpus)
        usd, price_kind = _sum((part.count, part.usd_per_hour) for part in lines) if priced else (None, None)
        power, power_kind = _sum((part.count, part.power_w) for part in lines) if powered else (None, None)
        return Bill(
            gpus=round(math.fsum(part.count for part in gpus)),
            usd_per_hour=usd,
            usd_per_year=None if usd is None else usd * HOURS_PER_YEAR,
            price_basis=basis,
            price_kind=price_kind,
            power_w=power,
            power_kind=power_kind,
            parts=tuple(lines),
            missing=tuple(dict.fromkeys(missing)),
        )

    @classmethod
    def together(cls, bills: Sequence[Bill]) -> Bill:
        """Return the bill of several, of GPUs that are not the same; their basis is one."""
        parts = (part for bill in bills for part in bill.parts)
        return cls.of(bills[0].price_basis, parts, (text for bill in bills for text in bill.missing))

    def times(self, count: float) -> Bill:
        """Return the bill of as many such GPUs ``count`` times."""
        parts = (replace(part, count=part.count * count) for part in self.parts)
        return Bill.of(self.price_basis, parts, self.missing)

    def to_dict(self) -> Any:
        """Return what commands print and files hold; its type is this class."""
        data = asdict(self)
        return data | {name: list(data[name]) for name in ("parts", "missing")}

    @property
    def gpu_parts(self) -> list[BillPart]:
        """GPUs by kind, in the order of the cluster."""
        return [part for part in self.parts if not isinstance(part, NetworkBillPart)]

    @property
    def memory_usd_per_hour(self) -> float:
        """Of the memory that keeps caches; 0 where there is none, or no price."""
        memory = [part for part in self.parts if isinstance(part, MemoryBillPart)]
        return math.fsum(part.count * part.usd_per_hour.value for part in memory if part.usd_per_hour)

    @property
    def power_scope(self) -> str:
        """What the power contains: ``all-in`` with cooling and conversion, ``IT`` the machines alone."""
        scopes = {"all-in" if part.all_in else "IT" for part in self.gpu_parts if part.power_w is not None}
        return " and ".join(sorted(scopes))

    def usd_per_million(self, tok_s: Batch) -> Batch | None:
        """USD for a million tokens at ``tok_s`` tokens/s of all these GPUs together; None without a price.

        ``1e6 * price / throughput``: 2.21 USD/h at 5,789.6 tok/s is 0.106 USD. The throughput says which tokens:
        output, input or all.

        Raises
        ------
        InputError
            If a throughput is not above 0.
        """
        if self.usd_per_hour is None:
            return None
        require_number("tok_s", tok_s, above=0)
        return 1e6 * (self.usd_per_hour / _SECONDS_PER_HOUR) / tok_s

    def tok_s_per_megawatt(self, tok_s: Batch) -> Batch | None:
        """Tokens/s per megawatt at ``tok_s`` tokens/s of all these GPUs together; None without a power.

        ``1e6 * throughput / power``: 5,789.6 tok/s at 2.1 kW is 2.757 M.

        Raises
        ------
        InputError
            If a throughput or the power is not above 0.
        """
        if self.power_w is None:
            return None
        require_number("tok_s", tok_s, above=0)
        require_number("power_w", self.power_w, above=0)
        return 1e6 * tok_s / self.power_w

    def totals(
        self,
        tok_s: float,
        tokens: str = "output",
        *,
        phase: str = "both",
        requests_per_s: float | None = None,
        gpus_idle: int | None = None,
        used: Bill | None = None,
    ) -> Totals:
        """Return the totals of these GPUs at ``tok_s`` tokens/s in total, 0 if nothing runs.

        Parameters
        ----------
        tokens, phase, requests_per_s, gpus_idle:
            As :class:`Totals` has them.
        used:
            The bill of the GPUs in use; None where that is all of them, or nobody looked.
        """
        return Totals(
            **(vars(self) | vars(UsedTotals.of(self, tok_s))),
            gpus_idle=gpus_idle,
            tokens=tokens,
            phase=phase,
            tok_s=tok_s,
            requests_per_s=requests_per_s,
            used=None if used is None else UsedTotals.of(used, tok_s),
        )


@dataclass(frozen=True)
class UsedTotals:
    """Totals counting only the GPUs in use.

    Attributes
    ----------
    gpus:
        GPUs in use.
    tok_s_per_gpu:
        Throughput over them.
    usd_per_hour, usd_per_million_tokens:
        Of them alone; null where there is no price.
    power_w, tok_s_per_mw:
        Of them alone; null where there is no power.
    """

    gpus: int
    tok_s_per_gpu: float
    usd_per_hour: float | None
    usd_per_million_tokens: float | None
    power_w: float | None
    tok_s_per_mw: float | None

    @classmethod
    def of(cls, bill: Bill, tok_s: float) -> UsedTotals:
        """Return the totals of the GPUs of ``bill`` at ``tok_s`` tokens/s."""
        return cls(
            gpus=bill.gpus,
            tok_s_per_gpu=tok_s / bill.gpus,
            usd_per_hour=bill.usd_per_hour,
            usd_per_million_tokens=bill.usd_per_million(tok_s) if tok_s > 0 else None,
            power_w=bill.power_w,
            tok_s_per_mw=bill.tok_s_per_megawatt(tok_s) if tok_s > 0 else None,
        )


@dataclass(frozen=True)
class Totals(Bill):
    """What a whole cluster gives, costs and draws (:meth:`Bill.totals`).

    Attributes
    ----------
    gpus, gpus_idle:
        GPUs that are paid for, and those of them without work; null where nobody looked.
    tokens, phase:
        Which tokens are counted (``output`` or ``input``), and of which phase: ``decode``, ``prefill`` or ``both``.
    tok_s_per_gpu, tok_s, requests_per_s:
        Over all GPUs, and of all together; requests are null where only one phase is priced.
    usd_per_million_tokens, tok_s_per_mw:
        Cost and power of the tokens; null where there is no figure.
    used:
        The same over the GPUs in use; null where none is idle.
    """

    gpus_idle: int | None
    tokens: str
    phase: str
    tok_s_per_gpu: float
    tok_s: float
    requests_per_s: float | None
    usd_per_million_tokens: float | None
    tok_s_per_mw: float | None
    used: UsedTotals | None


def _sum(counted: Iterable[tuple[float, WrittenFigure | None]]) -> tuple[float, EvidenceLabel]:
    """Return a sum over parts with a figure, and the weakest evidence behind it."""
    known = [(count, figure) for count, figure in counted if figure is not None]
    kind = weakest(Evidence[figure.kind.upper()] for _, figure in known)
    return math.fsum(count * figure.value for count, figure in known), kind.label
