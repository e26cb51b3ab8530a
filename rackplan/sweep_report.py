"""A sweep as plain data: what ``rackplan sweep`` prints with ``--json`` and writes as a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost.afd import AfdSweep
from cost.calibration.errors import ErrorOf, error_to_dict, errors_in
from cost.layouts import Sweep, best_at
from cost.pools import (
    DECODE_DERATE,
    PREFILL_DERATE,
    TTFT_LIMIT,
    FetchOrRecompute,
    RateMatch,
    RateMatches,
)
from topology.figures import Figure

_NUMBERS = ("tp", "attention_dp", "ep", "moe_tp", "stages", "replicas")
_FIGURES = (
    "batch",
    "max_batch",
    "step_s",
    "lower_step_s",
    "tok_s_per_user",
    "tok_s_per_gpu",
    "tok_s_per_gpu_used",
    "longest_wait_ms",
)


@dataclass(frozen=True, eq=False)
class Pools:
    """Matched pools, and what they are compared with.

    Attributes
    ----------
    ttft_s, ttft_default:
        Limit on the time to first token (None: none), and whether nobody asked for it.
    either, recomputed:
        With caches in a tier: one prompt alone fetched or recomputed; the best pools that prefill everything.
    joint:
        With AFD: the best pools whose decode keeps attention and experts together.
    """

    matches: RateMatches
    decode: Sweep
    prefill: Sweep
    ttft_s: float | None = None
    ttft_default: bool = False
    either: FetchOrRecompute | None = None
    recomputed: RateMatch | None = None
    joint: RateMatch | None = None


def imbalance_data(found: Sweep) -> dict[str, Any]:
    """Return the imbalance of experts that a sweep counts."""
    from cost.validation.serving import IMBALANCE, IMBALANCE_FROM_EP

    if found.imbalance is not None:
        return {
            "value": found.imbalance,
            "from_gpus": 1,
            "kind": "user" if found.imbalance > 1 else "assumed",
        }
    usual = IMBALANCE[found.deployment.workload.phase]
    return {"value": usual, "from_gpus": IMBALANCE_FROM_EP, "kind": "assumed"}


def sweep_data(found: Sweep, targets: Sequence[float]) -> dict[str, Any]:
    """Return a sweep's frontier and its best at each target; null where nobody is as fast."""
    workload = found.deployment.workload
    return {
        "cluster": found.deployment.cluster.name,
        "gpus": len(found.deployment.cluster.gpus),
        "phase": workload.phase,
        "context": workload.context,
        "tokens": workload.token_word,
        **({"what_if": workload.what_if} if workload.what_if else {}),
        "imbalance": imbalance_data(found),
        "configurations": len(found),
        "layouts": len(
            set(zip(found.layout.tolist(), found.tp.tolist(), found.moe_tp.tolist(), strict=True))
        ),
        "pareto": [configuration(found, int(index)) for index in found.frontier()],
        "iso": [_at(found, target) for target in targets],
        "calibration": error_to_dict(errors_in(found.deployment)),
    }


def configuration(found: Sweep, index: int) -> dict[str, Any]:
    """Return one configuration."""
    data: dict[str, Any] = {"layout": found.label(index)}
    data |= {name: int(getattr(found, name)[index]) for name in _NUMBERS}
    data |= {name: float(getattr(found, name)[index]) for name in _FIGURES}
    if isinstance(found, AfdSweep):
        data |= {"attention_gpus": data["tp"] * data["attention_dp"], "expert_gpus": data["ep"]}
        data["micro_batches"] = int(found.micro_batches[index])
    data["bound_by"] = found.bound(index)
    data["terms_s"] = {name: float(s[index]) for name, s in found.terms_s.items() if s[index]}
    return data


def _at(found: Sweep, target: float) -> dict[str, Any]:
    index = best_at(found, target)
    best = {"tok_s_per_gpu": None} if index is None else configuration(found, index)
    return {"target_tok_s_per_user": target, **best}


def _figure(figure: Figure) -> dict[str, Any]:
    return {"value": figure.value, "kind": figure.kind.label, "source": figure.source}


def match_data(pools: Pools) -> dict[str, Any]:
    """Return the frontier of both pools together, and their best."""
    matches, decode, prefill = pools.matches, pools.decode, pools.prefill
    best, workload = matches.best(), prefill.deployment.workload
    data: dict[str, Any] = {
        "isl": matches.isl,
        "osl": matches.osl,
        "gpus": matches.gpus,
        "tokens": "output, over all GPUs of both pools and those left over",
        "ttft": "fetch, prefill step and transfer of the cache, queueing excluded",
        "ttft_limit_s": pools.ttft_s,
        "ttft_limit_source": TTFT_LIMIT.source if pools.ttft_default else "--ttft-ms",
        "fastest_ttft_s": matches.fastest_ttft_s,
        "derates": {"prefill": _figure(PREFILL_DERATE), "decode": _figure(DECODE_DERATE)},
        "transfer": {
            "bytes_per_prompt": matches.cache_bytes,
            "over": matches.path.name,
            "bytes_per_s_per_gpu": matches.path.bytes_per_s,
            "latency_s": matches.path.latency_s,
            "reach": _figure(matches.path.reach),
        },
        "prefix_hit": workload.prefix_hit,
        "cached_tokens": workload.prompt_cached,
        "best": None if best is None else _match(best, decode, prefill),
        "calibration": error_to_dict(match_errors(decode, prefill)),
        "pareto": [_match(matches.row(int(index)), decode, prefill) for index in matches.frontier()],
    }
    if matches.fetch_path is not None:
        either = pools.either
        data["kv_offload"] = {
            "tier": matches.fetch_path.name,
            "bytes_per_prompt": matches.fetched_bytes,
            "bytes_per_s_per_gpu": matches.fetch_path.bytes_per_s,
            "alone": None
            if either is None
            else {
                "fetch_s": either.fetch_s,
                "rest_s": either.rest_s,
                "recompute_s": either.recompute_s,
                "faster": either.faster,
            },
            "recomputed_total_tok_s_per_gpu": _total(pools.recomputed),
        }
    if isinstance(decode, AfdSweep):
        data["afd"] = {"joint_total_tok_s_per_gpu": _total(pools.joint)}
    return data


def _total(row: RateMatch | None) -> float | None:
    return None if row is None else row.total_tok_s_per_gpu


def match_errors(decode: Sweep, prefill: Sweep) -> tuple[ErrorOf, ...]:
    """Return the errors of the chips of both pools, each once, as rows with a pool for each phase have them."""
    sides = (errors_in(side.deployment, phase="disaggregated") for side in (decode, prefill))
    return tuple(dict.fromkeys(error for errors in sides for error in errors))


def _match(row: RateMatch, decode: Sweep, prefill: Sweep) -> dict[str, Any]:
    pools = {
        "prefill": (prefill, row.prefill, row.prefill_workers),
        "decode": (decode, row.decode, row.decode_workers),
    }
    data: dict[str, Any] = {
        name: {"workers": workers, "gpus_per_worker": int(found.gpus[index]), **configuration(found, index)}
        for name, (found, index, workers) in pools.items()
    }
    return data | {
        "requests_per_s": row.requests_per_s,
        "output_tok_s_per_gpu": row.output_tok_s_per_gpu,
        "total_tok_s_per_gpu": row.total_tok_s_per_gpu,
        "output_tok_s_per_gpu_used": row.output_tok_s_per_gpu_used,
        "tok_s_per_user": row.tok_s_per_user,
        "ttft_s": row.ttft_s,
        "prefill_s": row.prefill_s,
        "transfer_s": row.transfer_s,
        "fetch_s": row.fetch_s,
        "gpus_used": row.gpus_used,
        "prefill_gpus": row.prefill_gpus,
        "decode_gpus": row.decode_gpus,
    }


def sweep_csv(sweeps: Sequence[Sweep]) -> str:
    """Return all configurations, a row each; a part of the step that a sweep does not have stays empty."""
    columns = [found.columns() for found in sweeps]
    names = ["cluster", "phase", "context", *dict.fromkeys(name for one in columns for name in one)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for found, one in zip(sweeps, columns, strict=True):
        workload = found.deployment.workload
        head = (found.deployment.cluster.name, workload.phase, workload.context)
        writer.writerows(_rows(head, one, names[3:], len(found)))
    return text.getvalue()


def _rows(head: tuple[str, str, int], columns: Mapping[str, Any], names: Sequence[str], rows: int) -> Any:
    values = [columns[name].tolist() if name in columns else [""] * rows for name in names]
    return ((*head, *row) for row in zip(*values, strict=True))
