"""Seconds and bytes/s from each GPU to each other one on idle links: what engines read as the cost between ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np

from topology.base.errors import InputError
from topology.routes.demand import summed
from topology.routes.link_loads import Router
from topology.routes.network import Floats

SUFFIXES = (".json", ".npy")
MAX_GPUS = 2_048
_BLOCK_PAIRS = 100_000


@dataclass(frozen=True)
class RankMatrix:
    """What a pair of GPUs has where no other pair sends; row sends to column.

    Attributes
    ----------
    amount_bytes:
        What one sends to the other.
    seconds:
        ``[gpus, gpus]`` of the amount over the rate, with the latency of the pair's routes (the mean by their bytes);
        zero to itself.
    bytes_per_s:
        ``[gpus, gpus]`` at which the tightest link of the pair's routes is full; infinite to itself.
    """

    amount_bytes: float
    seconds: Floats
    bytes_per_s: Floats

    def file(self, suffix: str, facts: Mapping[str, object]) -> bytes:
        """Return a file: ``.npy`` has the seconds, ``.json`` has ``facts`` and both.

        The JSON is what SGLang's ``--eplb-topology`` loads (pull request #37923, ``srt/eplb/topology.py``, open): it
        reads ``rank_cost_matrix``, square, finite and zero on the diagonal, in the order of the EP ranks.
        """
        if suffix == ".npy":
            np.save(buffer := BytesIO(), self.seconds)
            return buffer.getvalue()
        rates = [[rate if np.isfinite(rate) else None for rate in row] for row in self.bytes_per_s.tolist()]
        rows = {"rank_cost_matrix": self.seconds.tolist(), "bytes_per_s": rates}
        head = {"unit": "s", "bytes": self.amount_bytes, **facts}
        text = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in (head | rows).items())
        return f"{{{text}}}\n".encode()


def rank_matrix(router: Router, gpus: Sequence[int], amount_bytes: float) -> RankMatrix:
    """Return the times between ``gpus``, numbers in the cluster, in the order given.

    A pair's bytes take its routes as :class:`Router` shares them: with the part ``p`` of them on a link of rate ``r``
    the pair's rate is the least ``r / p``.

    Raises
    ------
    InputError
        If a pair has no route, or there are more GPUs than a file of all pairs is for.
    MissingFigureError
        If a pair takes a link whose rate nobody has published.
    """
    if len(gpus) > MAX_GPUS:
        raise InputError(f"a matrix of {len(gpus):,} GPUs is too large; choose at most {MAX_GPUS:,}.")
    net, who, size = router.network, np.asarray(gpus, dtype=np.int64), len(gpus)
    seconds, rates = np.zeros((size, size)), np.full((size, size), np.inf)
    step = max(1, _BLOCK_PAIRS // size)
    for start in range(0, size, step):
        at, to = np.nonzero(who[start : start + step, None] != who[None, :])
        parts = router.shares(who[at + start], who[to]).tocoo()
        parts.eliminate_zeros()
        router.require_rates(parts.row)
        rate = np.full(len(at), np.inf)
        np.minimum.at(rate, parts.col, net.bytes_per_s[parts.row] / parts.data)
        latency_s = summed(parts.col, parts.data * net.types.latency_s[net.type[parts.row]], len(at))
        rates[at + start, to] = rate
        seconds[at + start, to] = amount_bytes / rate + latency_s
    return RankMatrix(amount_bytes, seconds, rates)
