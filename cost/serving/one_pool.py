"""One pool for both phases: prompts of the next requests are prefilled between the decode steps of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost.inputs.workload import Workload
from cost.layouts import Sweep
from cost.layouts.arrays import Array
from cost.layouts.fitting import FittingLayouts
from cost.serving.pools import RateMatches
from cost.serving.steady_state import stay_s


def one_pool(both: Sweep, prompts: Sequence[tuple[float, Workload]]) -> RateMatches:
    """Return what each configuration of one pool serves.

    Parameters
    ----------
    both:
        Sweep of a workload of both phases.
    prompts:
        Prefill of each length of prompts with its share of the requests, the longest first.

    Notes
    -----
    Requests per second are the sequences over how long each stays (:func:`cost.serving.steady_state.stay_s`), as of
    :func:`cost.serving.steady_state.aggregated`, by which measured runs are predicted.
    """
    deployment, work = both.deployment, both.deployment.workload
    layouts, layout = both.parts_of.layouts, both.parts_of.layout
    used, place = np.unique(layout, return_inverse=True)

    def under(workload: Workload) -> FittingLayouts:
        return layouts.under(replace(deployment, workload=workload))

    alone = [under(workload).price(used, 1 / layouts.tp[used]).step_s[place] for _, workload in prompts]
    own_s = np.sum([share * seconds for (share, _), seconds in zip(prompts, alone, strict=True)], axis=0)
    full_s = under(replace(work, prompt_share=1.0)).price(layout, both.batch).step_s
    steps = work.answer / work.accept_length
    stays_s = stay_s(both.step_s, full_s, steps, own_s)
    first_s: Array = both.step_s + np.max(alone, axis=0)
    none = np.zeros(len(both), dtype=np.int64)
    return RateMatches(
        isl=work.prompt,
        osl=work.answer,
        gpus=len(deployment.cluster.gpus),
        prefill=none - 1,
        decode=np.arange(len(both)),
        prefill_workers=none,
        decode_workers=both.replicas,
        requests_per_s=both.tok_s / work.answer * (steps * both.step_s / stays_s),
        tok_s_per_user=both.tok_s_per_user,
        prefill_s=first_s,
        transfer_s=np.zeros(len(both)),
        prefill_gpus=none,
        decode_gpus=both.replicas * both.gpus,
        cache_bytes=0.0,
        path=None,
        fastest_ttft_s=float(np.min(first_s, initial=np.inf)),
    )
