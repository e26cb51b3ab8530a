"""The command line that does what the page does, to copy."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rackplan.serve.asked import Asked, Named, PlanOrder

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment


def explore_command(asked: Asked, sides: Sequence[Deployment]) -> str:
    """Return the sweep of one cluster, or the comparison of several, at the same figures."""
    names = [_cluster(named, side) for named, side in zip(asked.clusters, sides, strict=True)]
    if len(names) == 1:
        words = ["sweep", "--model", _file(asked.model, ".json"), "--cluster", names[0], *_lengths(asked)]
    else:
        words = ["compare", *names, "--model", _file(asked.model, ".json"), "--context", str(asked.context)]
        if asked.tpot_ms is not None:
            words += ["--tok-s-user", "none" if math.isinf(asked.tpot_ms) else f"{1e3 / asked.tpot_ms:.6g}"]
    return shlex.join(["rackplan", *words, *_pricing(asked, sides)])


def plan_command(asked: Asked, place: int, side: Deployment, order: PlanOrder) -> str:
    """Return the plan of one cluster: of a layout at a batch, or the best at the service level."""
    words = [
        "plan",
        "--model",
        _file(asked.model, ".json"),
        "--cluster",
        _cluster(asked.clusters[place], side),
    ]
    words += ["--context", str(asked.context)]
    for option in ("ep", "tp", "stages", "batch"):
        width = getattr(order, option)
        if width is not None:
            words += [f"--{option}", str(width)]
    if order.batch is None and asked.tpot_ms is not None:
        words += ["--tpot-ms", "none" if math.isinf(asked.tpot_ms) else f"{asked.tpot_ms:g}"]
    if side.model.moe is not None:
        words += ["--loads", order.loads]
    words += ["--time-limit", f"{order.seconds:g}"]
    return shlex.join(["rackplan", *words, *_pricing(asked, [side])])


def _file(named: Named, ending: str) -> str:
    """Return a name of the catalog, or the name of the dropped file."""
    return named.name if not named.text or named.name.endswith(ending) else f"{named.name}{ending}"


def _cluster(named: Named, side: Deployment) -> str:
    if not named.text:
        return side.cluster.name
    return named.name if named.name.endswith((".yaml", ".yml")) else f"{named.name}.yaml"


def _lengths(asked: Asked) -> list[str]:
    if not asked.pools:
        words = ["--context", str(asked.context)]
        if asked.tpot_ms is not None and not math.isinf(asked.tpot_ms):
            words += ["--tok-s-user", f"{1e3 / asked.tpot_ms:.6g}"]
        return words
    words = ["--isl", str(asked.isl), "--osl", str(asked.osl)]
    for option, limit in (("--tpot-ms", asked.tpot_ms), ("--ttft-ms", asked.ttft_ms)):
        if limit is not None:
            words += [option, "none" if math.isinf(limit) else f"{limit:g}"]
    return words


def _pricing(asked: Asked, sides: Sequence[Deployment]) -> list[str]:
    """Return formats, drafts, the sliders' figures and prices."""
    words: list[str] = []
    if asked.weights is not None:
        words += ["--weights", asked.weights]
    if asked.kv_dtype != "bf16":
        words += ["--kv-dtype", asked.kv_dtype]
    if asked.draft_tokens:
        words += ["--draft-tokens", str(asked.draft_tokens)]
    for figure, factor in asked.settings.items():
        words += ["--set", f"{figure}={factor}"]
    if asked.price_basis is not None:
        words += ["--price-basis", asked.price_basis]
    prices = {name: price for side in sides for name, price in side.prices.prices.items()}
    for name, price in prices.items():
        words += ["--price", f"{name}={price:g}"]
    return words
