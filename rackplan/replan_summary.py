"""What ``rackplan replan`` prints and writes besides the plan: totals, the front, and the moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cost.calibration.errors import errors_in
from placement.replan.few_moves import KNEE
from placement.replan.replan_plan import Replanned, ReplanOptions
from placement.replan.steps import Step
from placement.replan.transfers import NEAR
from rackplan.error_words import band_words
from rackplan.findings_summary import failure_lines, worst_words
from rackplan.summary import balance_lines, evidence_lines, proof_lines, what_if_lines
from rackplan.words import load_names, table, underlined, wrapped

MOST_ROWS = 9
FRONT = ["moves", "of copies", "GB", "balancedness", "max/mean"]
SCHEMA_VERSION = 1


def totals_to_dict(found: Replanned) -> dict[str, Any]:
    """Return everything but the moves themselves as JSON-able data."""
    return {
        "moves": found.moves,
        "bytes": found.bytes,
        "seconds": found.transfer.seconds,
        "bottleneck": found.transfer.bottleneck,
        "bytes_from": dict(found.transfer.bytes_by_distance),
        "copies": found.copies,
        "moved": found.moves / found.copies,
        "needed_moves": found.needed,
        "fresh_moves": found.fresh_moves,
        "lost_copies": found.lost_copies,
        "buffers": sum(step.buffer for step in found.steps),
        "balancedness": {
            "before": found.before,
            "restored": found.restored,
            "after": found.after,
            "fresh": found.fresh,
        },
        "front": [
            {
                "moves": point.moves,
                "bytes": point.moves * found.bytes_per_move,
                "balancedness": point.balancedness,
                "max_over_mean": point.objective,
            }
            for point in found.front
        ],
    }


def moves_to_dict(found: Replanned) -> dict[str, Any]:
    """Return ``moves.json``: totals, and the moves in an order that a runtime can follow."""
    deployment = found.plan.deployment
    return {
        "schema_version": SCHEMA_VERSION,
        "model": deployment.model.name,
        "cluster": deployment.cluster.name,
        "totals": totals_to_dict(found),
        "moves": [_step(found, step) for step in found.steps],
    }


def _step(found: Replanned, step: Step) -> dict[str, Any]:
    gpus = found.plan.deployment.cluster.gpus
    return {
        "layer": step.layer,
        "gpu": gpus[step.gpu].id,
        "slot": step.slot,
        "expert": step.expert,
        "replaces": step.replaces,
        "from": None if step.source is None else gpus[step.source].id,
        "bytes": found.expert_bytes[step.layer],
        "buffer": step.buffer,
    }


def replan_summary(found: Replanned, options: ReplanOptions, files: Mapping[str, str]) -> str:
    """The summary of ``rackplan replan``."""
    plan = found.plan
    deployment = plan.deployment
    lines = underlined(f"Re-plan of {deployment.model.name} on {deployment.cluster.name}")
    if options.lost:
        lines += wrapped("Lost", f"{', '.join(options.lost)}: {found.lost_copies:,} copies lay there")
    if plan.loads is not None:
        lines += wrapped("Loads", load_names(plan.loads.names))
    lines += what_if_lines(deployment)
    lines += wrapped("Rule", _rule(options))
    lines += wrapped("Moves", moves_words(found))
    lines += wrapped("Links", links_words(found))
    lines += wrapped("Balancedness", balance_words(found))
    left = f" over the {len(deployment.cluster.gpus):,} GPUs left" if options.lost else ""
    band = band_words(plan.score.tok_s_per_gpu, errors_in(plan.deployment, plan.layout))
    lines += wrapped(
        "Throughput",
        f"{plan.score.tok_s_per_gpu:,.0f} {plan.score.tokens} tok/s/GPU{left}{band}, "
        f"step {plan.score.step_s * 1e3:,.2f} ms",
    )
    for number, note in enumerate(plan.notes):
        lines += wrapped("" if number else "Notes", note)
    if len(found.front) > 1:
        lines += [
            "",
            f"Front of moves and balance{worst_words(plan)}, every row a real placement:",
            *table([FRONT, *front_rows(found)]),
        ]
    lines += ["", *balance_lines(plan), *proof_lines(plan)]
    if plan.failures is not None:
        lines += ["", *failure_lines(plan.failures)]
    lines += ["", *evidence_lines(plan), *wrapped("Written", ", ".join(files.values()))]
    return "\n".join(lines)


def _rule(options: ReplanOptions) -> str:
    budget = [
        text
        for text, value in (
            (f"{options.max_moves:,} moves" if options.max_moves is not None else "", options.max_moves),
            (
                f"{options.max_bytes / 1e9:,.1f} GB" if options.max_bytes is not None else "",
                options.max_bytes,
            ),
        )
        if value is not None
    ]
    if budget:
        return f"the best balance within {' and '.join(budget)}"
    if options.lost:
        return "the fewest moves that restore every expert; allow more with --max-moves or --max-bytes"
    return f"the fewest moves within {KNEE:.0%} of a fresh plan's balancedness; for a budget --max-moves, --max-bytes"


def moves_words(found: Replanned) -> str:
    """Return how many copies move, beside a fresh plan."""
    share = found.moves / found.copies
    return (
        f"{found.moves:,} of {found.copies:,} copies ({share:.1%}), {found.bytes / 1e9:,.1f} GB; a fresh plan "
        f"would move {found.fresh_moves:,} ({found.fresh_moves / found.copies:.1%}) after exact relabelling of GPUs"
    )


def links_words(found: Replanned) -> str:
    """Return where the copies come from, and how long that takes."""
    if not found.moves:
        return "nothing is fetched"
    amounts = found.transfer.bytes_by_distance
    words = {
        "node": "in the node",
        "domain": "in the domain",
        "rack": "in the rack",
        "across": "across",
        "storage": "from storage (no copy is left)",
    }
    parts = [f"{amounts[near] / 1e9:,.1f} GB {words[near]}" for near in NEAR if amounts[near]]
    seconds = found.transfer.seconds
    text = f"fetched {', '.join(parts)}"
    if seconds is None:
        return f"{text}; a link on the way has no published rate, so no time"
    if found.transfer.bottleneck:
        text += f"; {seconds * 1e3:,.1f} ms over the links, busiest {found.transfer.bottleneck}"
    buffered = sum(step.buffer for step in found.steps)
    return text + (f"; {buffered:,} moves need a buffer of one expert" if buffered else "")


def balance_words(found: Replanned) -> str:
    """Return balancedness on the way from the old plan to a fresh one."""
    parts = [] if found.before is None else [f"{found.before:.4f} before"]
    if found.needed or found.before is None:
        parts.append(f"{found.restored:.4f} restored")
    parts += [f"{found.after:.4f} after", f"{found.fresh:.4f} a fresh plan"]
    return ", ".join(parts) + " (mean over layers and scenarios)"


def front_rows(found: Replanned) -> list[list[str]]:
    """Return the cells of some points of the front, both ends with them."""
    points = found.front
    last = len(points) - 1
    count = min(MOST_ROWS, len(points))
    return [
        [
            f"{point.moves:,}",
            f"{point.moves / found.copies:.1%}",
            f"{point.moves * found.bytes_per_move / 1e9:,.1f}",
            f"{point.balancedness:.4f}",
            f"{point.objective:.4f}",
        ]
        for point in (points[round(i * last / max(1, count - 1))] for i in range(count))
    ]
