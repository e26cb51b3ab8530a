"""One pool for both phases: prompts of the next requests are prefilled between the decode steps of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost.inputs.workload import Workload
from cost.layouts import Sweep
from cost.layouts.arrays import Array
from cost.serving.pools import RateMatches
from cost.serving.steady_state import WAITED


def one_pool(
    both: Sweep,
    prompts: Sequence[tuple[float, Workload]],
    *,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
) -> RateMatches:
    """Return what each configuration of one pool serves within the limits.

    Parameters
    ----------
    both:
        Sweep of a workload of both phases; at the speed ``1 / tpot_s`` too, so that each layout has its exact batch.
    prompts:
        Prefill of each length of prompts with its share of the requests, the longest first.
    ttft_s, tpot_s:
        As of :func:`cost.serving.pools.match_rates`.

    Notes
    -----
    A request stays for its own prefill ``P``, for ``steps`` decode steps of ``t`` seconds, which are longer by the
    prompts in them, and waits for a part ``w`` of what these would add besides to a step of ``T`` seconds, all of it
    counted (:func:`cost.serving.steady_state.aggregated`, as measured runs are predicted):

        requests per second = sequences / (P + steps (t + w (T - t)))
    """
    deployment, work = both.deployment, both.deployment.workload
    layouts, layout = both.parts_of.layouts, both.parts_of.layout
    used, place = np.unique(layout, return_inverse=True)
    alone = []
    for _, workload in prompts:
        other = layouts.under(replace(deployment, workload=workload))
        alone.append(other.price(used, 1 / other.tp[used]).step_s[place])
    own_s = np.sum([share * seconds for (share, _), seconds in zip(prompts, alone, strict=True)], axis=0)
    steps = work.answer / work.accept_length
    first_s: Array = both.step_s + np.max(alone, axis=0)
    within = both.tok_s_per_user >= (1 / tpot_s if tpot_s else 0.0)
    within &= first_s <= (math.inf if ttft_s is None else ttft_s)
    rows = np.flatnonzero(within)
    whole = layouts.under(replace(deployment, workload=replace(work, prompt_share=1.0)))
    step_s, full_s = both.step_s[rows], whole.price(layout[rows], both.batch[rows]).step_s
    stays_s = step_s + own_s[rows] / steps + WAITED * np.maximum(0.0, full_s - step_s)
    rate = both.tok_s[rows] / work.answer * (step_s / stays_s)
    none = np.zeros(len(rows), dtype=np.int64)
    return RateMatches(
        isl=work.prompt,
        osl=work.answer,
        gpus=len(deployment.cluster.gpus),
        prefill=none - 1,
        decode=rows,
        prefill_workers=none,
        decode_workers=both.replicas[rows],
        requests_per_s=rate,
        tok_s_per_user=both.tok_s_per_user[rows],
        prefill_s=first_s[rows],
        transfer_s=np.zeros(len(rows)),
        prefill_gpus=none,
        decode_gpus=both.replicas[rows] * both.gpus[rows],
        cache_bytes=0.0,
        path=None,
        fastest_ttft_s=float(np.min(first_s, initial=np.inf)),
    )
