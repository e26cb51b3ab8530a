"""A sweep as plain data: what ``rackplan sweep`` prints with ``--json`` and writes as a CSV file."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from cost.calibration.errors import error_to_dict, errors_in
from cost.rate_matching import DECODE_DERATE, PREFILL_DERATE
from cost.sweep import best_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost.calibration.errors import ErrorOf
    from cost.rate_matching import RateMatch, RateMatches
    from cost.sweep import Sweep

__all__ = ["match_data", "match_errors", "sweep_csv", "sweep_data"]

_NUMBERS = ("tp", "attention_dp", "ep", "moe_tp", "stages", "replicas")
_FIGURES = (
    "batch",
    "max_batch",
    "step_s",
    "lower_step_s",
    "tok_s_per_user",
    "tok_s_per_gpu",
    "tok_s_per_gpu_used",
)


def sweep_data(found: Sweep, targets: Sequence[float]) -> dict[str, Any]:
    """Return a sweep's frontier and its best at each target; null where nobody is as fast."""
    workload = found.setting.workload
    return {
        "cluster": found.setting.cluster.name,
        "gpus": len(found.setting.cluster.gpus),
        "phase": workload.phase,
        "context": workload.context,
        "tokens": workload.token_word,
        "configurations": len(found),
        "layouts": len(
            set(zip(found.layout.tolist(), found.tp.tolist(), found.moe_tp.tolist(), strict=True))
        ),
        "pareto": [configuration(found, int(index)) for index in found.frontier()],
        "iso": [_at(found, target) for target in targets],
        "calibration": error_to_dict(errors_in(found.setting)),
    }


def configuration(found: Sweep, index: int) -> dict[str, Any]:
    """Return one configuration."""
    data: dict[str, Any] = {"layout": found.label(index)}
    data |= {name: int(getattr(found, name)[index]) for name in _NUMBERS}
    data |= {name: float(getattr(found, name)[index]) for name in _FIGURES}
    data["bound_by"] = found.bound(index)
    data["terms_s"] = {name: float(s[index]) for name, s in found.terms_s.items() if s[index]}
    return data


def _at(found: Sweep, target: float) -> dict[str, Any]:
    index = best_at(found, target)
    best = {"tok_s_per_gpu": None} if index is None else configuration(found, index)
    return {"target_tok_s_per_user": target, **best}


def match_data(matches: RateMatches, decode: Sweep, prefill: Sweep) -> dict[str, Any]:
    """Return the frontier of both pools together, and their best."""
    best = matches.best()
    return {
        "isl": matches.isl,
        "osl": matches.osl,
        "gpus": matches.gpus,
        "tokens": "output, over all GPUs of both pools and those left over",
        "ttft": "prefill step alone, queueing excluded",
        "derates": {
            name: {"value": figure.value, "kind": figure.kind.label, "source": figure.source}
            for name, figure in (("prefill", PREFILL_DERATE), ("decode", DECODE_DERATE))
        },
        "best": None if best is None else _match(best, decode, prefill),
        "calibration": error_to_dict(match_errors(decode, prefill)),
        "pareto": [_match(matches.row(int(index)), decode, prefill) for index in matches.frontier()],
    }


def match_errors(decode: Sweep, prefill: Sweep) -> tuple[ErrorOf, ...]:
    """Return the errors of the chips of both pools, each once, as rows with a pool for each phase have them."""
    sides = (errors_in(side.setting, phase="disaggregated") for side in (decode, prefill))
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
        "gpus_used": row.gpus_used,
    }


def sweep_csv(sweeps: Sequence[Sweep]) -> str:
    """Return all configurations, a row each; a part of the step that a sweep does not have stays empty."""
    columns = [found.columns() for found in sweeps]
    names = ["cluster", "phase", "context", *dict.fromkeys(name for one in columns for name in one)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for found, one in zip(sweeps, columns, strict=True):
        workload = found.setting.workload
        head = (found.setting.cluster.name, workload.phase, workload.context)
        writer.writerows(_rows(head, one, names[3:], len(found)))
    return text.getvalue()


def _rows(head: tuple[str, str, int], columns: Mapping[str, Any], names: Sequence[str], rows: int) -> Any:
    values = [columns[name].tolist() if name in columns else [""] * rows for name in names]
    return ((*head, *row) for row in zip(*values, strict=True))
