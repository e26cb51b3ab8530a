"""Weights that every token goes through: dense feed-forward, shared experts, router, output head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cost.dtypes import bytes_per_param
from cost.inputs.machine import Machine, Rates
from cost.inputs.workload import StepShape
from cost.model import Model, MoeFfn, SharedFfn
from cost.quantity import Quantity
from cost.terms.work import LayerStep, Parts, Term, Work, weight_work


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
    flop, read = 2 * params * tokens, params * bytes_per_param(weights) / tp
    columns = hidden / tp
    return weight_work(
        term, "gemm", "hbm.weights", flop=flop, read=read, columns=columns, weights=weights, rates=rates
    )


def _add(parts: Parts, at: LayerStep) -> None:
    """Dense or shared feed-forward, and the router."""
    ffn, shape, precision = at.layer.ffn, at.shape, at.model.precision
    if isinstance(ffn, MoeFfn | SharedFfn):
        dense: list[tuple[int, Quantity, str]] = [
            (ffn.shared_params, shape.width, precision["shared"]),
            (ffn.router_params, 1.0, precision["router"]),
        ]
    else:
        dense = [(ffn.params, shape.width, precision["dense"])]
    hidden, rates = at.model.hidden, at.machine.rates
    for params, tp, weights in dense:
        if params:
            work = dense_work(params, tokens=shape.tokens, tp=tp, hidden=hidden, weights=weights, rates=rates)
            parts.works.append(replace(work, layers=at.count))


def add_head(parts: Parts, model: Model, shape: StepShape, machine: Machine, last: Quantity) -> None:
    """Output head of decoding tokens and of the last token of each prompt; ``last``: 1 where it is, else 0."""
    prompts = shape.prompt_tokens / np.maximum(shape.prompt_length - shape.prompt_cached, 1.0)
    work = dense_work(
        model.head_params,
        tokens=shape.sequences * shape.queries + prompts,
        tp=shape.width,
        hidden=model.hidden,
        weights=model.precision["head"],
        rates=machine.rates,
        term="head",
    )
    parts.works.append(replace(work, layers=last))


DENSE = Term(
    "dense",
    "#e69f00",
    behind=("gemm", "hbm"),
    formula="layers x hypot(2 x weights x tokens / flop/s, bytes of weights / HBM rate)",
    of_layer=_add,
)
HEAD = Term(
    "head",
    "#44aa99",
    behind=("gemm", "hbm"),
    formula="hypot(2 x vocabulary x hidden x tokens / flop/s, bytes of the head / HBM rate)",
)
