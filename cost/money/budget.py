"""Clusters of as many whole domains as a budget of power or money allows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from cost.money.prices import PriceBook
from topology.build import rebuilt
from topology.catalog import full_domain
from topology.changes.repeat import repeated
from topology.cluster import Cluster

MAX_JOINED_GPUS = 1152
"""GPUs of the part of a larger cluster that is made."""


def clusters_within(
    book: PriceBook, units: Iterable[Cluster], *, mw: float | None = None, usd_h: float | None = None
) -> tuple[list[Cluster], dict[str, float]]:
    """Return ``units`` each repeated as often as so many megawatts, else USD per hour, allow; at least once.

    A unit is what a name or a file means, so ``name@16`` is 16 GPUs. Of more than :data:`MAX_JOINED_GPUS` GPUs a part
    is returned, and by its name how many times as many there are.

    Raises
    ------
    InputError
        If nothing is known of what one costs or draws.
    """
    clusters, scales = list[Cluster](), dict[str, float]()
    for unit in units:
        book.refuse_unknown(unit, "mw" if mw else "usd_h", f"{mw or usd_h:g}")
        bill = book.bill(unit)
        unit_cost = (bill.power_w if mw else bill.usd_per_hour) or math.inf
        budget = mw * 1e6 if mw else usd_h or 0.0
        count = max(1, int(budget / unit_cost + 1e-9))
        alone = unit.spec.raw is not None or unit.spec.scale_out is None
        joined = 1 if alone else min(count, max(1, MAX_JOINED_GPUS // len(unit.gpus)))
        cluster = repeated(unit, joined)
        if count > 1:
            full = all(full_domain(domain).gpus == domain.gpus for domain in unit.spec.domains)
            name = (
                f"{unit.name.partition('@')[0]}@{count * len(unit.gpus)}"
                if full
                else f"{count} x {unit.name}"
            )
            cluster = rebuilt(cluster, replace(cluster.spec, name=name))
        clusters.append(cluster)
        scales[cluster.name] = count / joined
    return clusters, scales
