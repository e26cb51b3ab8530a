"""Weights that every token goes through: dense feed-forward, shared experts, router, output head."""

from __future__ import annotations

from cost.dtypes import bytes_per_param
from cost.machine import Rates
from cost.quantity import Quantity
from cost.terms.work import Work, filling


def dense_work(
    params: float,
    *,
    tokens: Quantity,
    tp: Quantity,
    hidden: int,
    weights: str,
    rates: Rates,
    term: str = "dense",
) -> Work:
    """Work of one GPU for ``params`` weights cut over ``tp`` GPUs that serve ``tp * tokens`` tokens.

    Notes
    -----
    flop = 2 * params * tokens; bytes = params * (bytes of one) / tp, read once a step whatever the batch.
    """
    fraction, wider = rates.fractions("gemm", weights)
    return Work(
        term,
        fraction,
        "hbm.weights",
        2 * params * tokens / rates.flop_per_s[weights],
        params * bytes_per_param(weights) / tp / rates.hbm_bytes_per_s,
        columns=filling(hidden / tp, rates.flop_per_s[weights], rates.hbm_bytes_per_s),
        wider=wider,
    )
