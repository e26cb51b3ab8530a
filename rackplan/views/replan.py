"""A re-plan: what moves from where, what that buys, and what more or fewer moves would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic.dataclasses import dataclass

from cost.calibration.errors import errors_in
from cost.serving.supply import ProofData
from placement.migrate.migration import KNEE
from placement.migrate.moves_file import MovesTotalsData, moves_totals
from placement.migrate.replan import Replanned, ReplanOptions
from placement.migrate.steps import NEAR, Transfers
from placement.plans.schema import PlanScoreData
from placement.plans.writing import plan_score_to_dict
from rackplan.report.notes import band_words, load_names, worst_words
from rackplan.views.blocks import (
    Block,
    Chart,
    Heading,
    Page,
    Table,
    Text,
    View,
    labelled,
    sections,
    thinned,
)
from rackplan.views.data import SetData, taken
from rackplan.views.findings import failure_blocks
from rackplan.views.money import totals_blocks
from rackplan.views.plan import balance_blocks, evidence_blocks
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.words import limit_blocks, what_if_blocks
from topology.base.units import plural

MOST_ROWS = 9
"""Points of the front that are listed."""
_PLACES = {
    "node": "within a node",
    "domain": "within a domain",
    "rack": "within a rack",
    "across": "from other racks over the scale-out network",
    "storage": "from storage (no copy is left)",
}


@dataclass(frozen=True, kw_only=True)
class ReplanProofData(ProofData):
    """What is proven of a re-plan's placement.

    Attributes
    ----------
    interrupted:
        Whether Ctrl-C ended the search: it is the best so far.
    """

    interrupted: bool


@dataclass(frozen=True, kw_only=True)
class ReplanResult(SetData, MovesTotalsData):
    """What ``rackplan replan`` prints: what moves, and the score of the new plan.

    Attributes
    ----------
    lost, lost_gpus, faulty_links:
        What ``--lost`` names, the GPUs that went with it, and links that fail or are slow.
    score, proof:
        Of the new plan.
    notes:
        What a reader should know.
    files:
        What was written, by what it is.
    """

    lost: list[str]
    lost_gpus: int
    faulty_links: int
    score: PlanScoreData
    proof: ReplanProofData
    notes: list[str]
    files: dict[str, str]


def replan_view(found: Replanned, options: ReplanOptions, files: Mapping[str, str]) -> View:
    """Return the result of ``rackplan replan``."""
    plan, score = found.plan, found.plan.score
    deployment = plan.deployment
    left = f" over the remaining {plural(len(deployment.cluster.gpus), 'GPU')}" if found.lost_gpus else ""
    band = band_words(score.tok_s_per_gpu, errors_in(deployment, plan.layout))
    head: list[Block] = [
        Heading(f"Re-plan of {deployment.model.name} on {deployment.cluster.name}"),
        *labelled("Lost", _lost(found, options)),
        *labelled("Faults", deployment.fabric_note),
        *labelled("Loads", load_names(plan.loads.names) if plan.loads is not None else ""),
        *set_blocks("Set", deployment.cluster),
        *what_if_blocks(deployment),
        Text(_rule(found, options), "Rule"),
        *_moves(found),
        Text(
            f"{score.tok_s_per_gpu:,.0f} {score.tokens} tok/s/GPU{left}{band}, step {score.step_s * 1e3:,.2f} ms",
            "Throughput",
        ),
        *totals_blocks(plan.totals),
        *labelled("Notes", *plan.notes),
    ]
    return View(
        sections(
            limit_blocks(plan),
            head,
            [_front(found)] if len(found.front) > 1 else [],
            balance_blocks(plan),
            failure_blocks(plan.failures, plan.score.tok_s_per_gpu),
            [*evidence_blocks(plan), *labelled("Written", ", ".join(files.values()))],
        ),
        ReplanResult(
            **moves_totals(found),
            **set_data(deployment.cluster),
            lost=list(options.lost),
            lost_gpus=found.lost_gpus,
            faulty_links=len(found.faults),
            score=plan_score_to_dict(plan),
            proof=taken(ReplanProofData, plan.proof, interrupted=plan.interrupted),
            notes=list(plan.notes),
            files=dict(files),
        ),
    )


def moved_words(found: Replanned) -> str:
    """Return what leads the headline of a re-plan: the copies that move."""
    lost = f" after the loss of {plural(found.lost_gpus, 'GPU')}" * bool(found.lost_gpus)
    share = f"{found.moves:,} of {plural(found.copies, 'copy')} move ({found.moves / found.copies:.1%})"
    return f"Re-plan{lost}: {share}, {found.bytes / 1e9:,.1f} GB"


def replan_section(found: Replanned) -> list[Block]:
    """Return the report section: what moves, from where, and the effect of more or fewer moves."""
    front = replace(_front(found), fold="Moves and balance as a table")
    return [Heading("Re-plan", 2), *_moves(found), Page(lambda: _pictures(found)), front]


def _pictures(found: Replanned) -> list[Block]:
    from rackplan.report.pictures.moves import moves_pictures
    from rackplan.views.charts import front_chart

    chart = Chart("front", front_chart(found), "Balancedness against moves", 360)
    return [*moves_pictures(found), chart]


def _rule(found: Replanned, options: ReplanOptions) -> str:
    budget = [] if options.max_moves is None else [f"{plural(options.max_moves, 'move')}"]
    budget += [] if options.max_bytes is None else [f"{options.max_bytes / 1e9:,.1f} GB"]
    if budget:
        return f"best balance within {' and '.join(budget)}"
    if options.horizon_s is not None:
        return f"every move that saves more time than it costs over {options.horizon_s:g} s of serving"
    if found.lost_gpus:
        return "fewest moves that restore every expert; allow more with --max-moves, --max-bytes or --horizon"
    return (
        f"fewest moves within {KNEE:.0%} of a fresh plan's balancedness; set a budget with --max-moves "
        "or --max-bytes"
    )


def _lost(found: Replanned, options: ReplanOptions) -> str:
    """Return what failed and the copies lost with it; empty without failures."""
    parts = []
    if found.lost_gpus:
        parts.append(f"{plural(found.lost_gpus, 'GPU')} with {plural(found.lost_copies, 'copy')}")
    slow = sum(fault.factor > 0 for fault in found.faults)
    if down := len(found.faults) - slow:
        parts.append(f"{plural(down, 'link')} down")
    if slow:
        parts.append(f"{plural(slow, 'link')} slow")
    names = ", ".join(options.lost)
    return f"{names}: {'; '.join(parts)}" if names and parts else names or "; ".join(parts)


def _moves(found: Replanned) -> list[Block]:
    """Return how many copies move, from where, and balancedness on the way to a fresh plan."""
    share = found.moves / found.copies
    moves = (
        f"{found.moves:,} of {plural(found.copies, 'copy')} ({share:.1%}), {found.bytes / 1e9:,.1f} GB; a "
        f"fresh plan would move {found.fresh_moves:,} ({found.fresh_moves / found.copies:.1%}) after exact "
        "relabelling of GPUs"
    )
    parts = [] if found.before is None else [f"{found.before:.4f} before"]
    if found.needed or found.before is None:
        parts.append(f"{found.restored:.4f} restored")
    parts += [f"{found.after:.4f} after", f"{found.fresh:.4f} for a fresh plan"]
    balance = f"{', '.join(parts)} (mean over layers and scenarios)"
    return [Text(moves, "Moves"), Text(_links(found), "Links"), Text(balance, "Balancedness")]


def _links(found: Replanned) -> str:
    """Return where the copies come from, the transfer time, and how many need a buffer."""
    text = links_words(found.transfer, found.moves)
    buffered = sum(step.buffer for step in found.steps)
    known = found.transfer.seconds is not None
    return text + (
        f"; {plural(buffered, 'move')} need{'s' * (buffered == 1)} a buffer of one expert"
        if buffered and known
        else ""
    )


def links_words(transfer: Transfers, moves: int) -> str:
    """Return where copies come from, and the transfer time."""
    if not moves:
        return "no copies move"
    amounts, seconds = transfer.bytes_by_distance, transfer.seconds
    parts = [f"{amounts[near] / 1e9:,.1f} GB {_PLACES[near]}" for near in NEAR if amounts[near]]
    text = ", ".join(parts)
    if seconds is None:
        return f"{text}; time unknown, since a link on the path has no published rate"
    if transfer.bottleneck:
        text += f"; {seconds * 1e3:,.1f} ms over the links, busiest link {transfer.bottleneck}"
    return text


def _front(found: Replanned) -> Table:
    """Return some points of the front, including both ends and the first that meets the limit, which is marked."""
    limit_s, first = found.plan.limit_s, found.meets
    limit = "" if limit_s is None else f"meets {limit_s * 1e3:g} ms"
    mark = [("", lambda point: limit if point == first else "")] if first is not None else []
    none = f"; none {limit}" * (limit_s is not None and first is None)
    shown = {*thinned(found.front, MOST_ROWS), *([] if first is None else [first])}
    return Table.of(
        sorted(shown, key=lambda point: point.moves),
        ("moves", lambda point: f"{point.moves:,}"),
        ("of copies", lambda point: f"{point.moves / found.copies:.1%}"),
        ("GB", lambda point: f"{point.moves * found.bytes_per_move / 1e9:,.1f}"),
        ("balancedness", lambda point: f"{point.balancedness:.4f}"),
        ("max/mean", lambda point: f"{point.objective:.4f}"),
        *mark,
        title=f"Pareto front of moves and balance{worst_words(found.plan)} (each row is an actual placement{none}):",
    )
