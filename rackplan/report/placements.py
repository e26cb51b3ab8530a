"""Placements of compared clusters: each plan to one scale, what its domains bring, its proof and its experts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cost.terms.pipeline import hop_list
from placement.analysis.comparison import Comparison, Placement
from placement.scoring import away_share, expert_read_bytes
from rackplan.report.doc import Block, Chart, LateRows, Layer, Note, Row, Table
from rackplan.report.fields import number, phrase
from rackplan.report.pictures.experts import expert_map
from rackplan.report.pictures.racks import racks_picture
from topology.base.units import mean_of

PLACEMENTS = Table.of(
    "placements",
    "cluster pool layout replicas stages gpus_per_domain ep in_domain away_share expert_read_bytes_per_step "
    "hop_bytes_per_step hop_bytes_per_s pipeline_hops_s balancedness status objective bound gap "
    "| dispatch_s combine_s tok_s_per_user batch gpus_used reason",
    "Placements and their proofs",
    max_rows=0,
)
_METHOD = (
    "Each cluster has the layout of its row, with experts placed by the planner's fast path, for synthetic loads "
    "where none were given; of two pools the figures are of the one that decodes. Objective and bound are of the "
    "largest over the mean GPU load; OPTIMAL: nothing is better."
)

_TRAFFIC_WORDS = {
    "expert_read_bytes_per_step": "a GPU reads {} of their weights a step",
    "away_share": "{} of the expert choices of tokens leave their domain",
    "step_s": "dispatch and combine take {} of a step",
}
"""What groups of other sizes bring, by key."""


def placements_table(result: Comparison) -> Table:
    """Return the placements of the compared rows, made when they are read: plans take seconds."""
    return replace(PLACEMENTS, rows=LateRows(lambda: PLACEMENTS(map(_placement, result.placements)).rows))


def _placement(placement: Placement) -> Row:
    """Return a row of :data:`PLACEMENTS`: of the pool that decodes, or of the only one."""
    row, plan = placement.row, placement.plan
    deployment, layout = placement.pools[0]
    # without that of sampled tokens back to the first stage
    hops = hop_list(deployment, layout.replicas[0], placement.batch(0))[:-1]
    slowest = min(hops, key=lambda hop: hop.bytes_per_s, default=None)
    spread = [deployment.domain_set(stage) for stages in layout.replicas for stage in stages]
    proof = plan.proof if plan and plan.balancedness else None
    return PLACEMENTS.row(
        row,
        None,
        **{f"{term}_s": row.terms_s.get(term) or None for term in ("dispatch", "combine", "pipeline_hops")},
        **{key: getattr(proof, key, None) for key in ("status", "objective", "bound", "gap")},
        pool=deployment.workload.phase,
        layout=layout.short(moe=deployment.model.moe is not None),
        replicas=len(layout.replicas),
        stages=layout.stages,
        gpus_per_domain=max(domain.gpus for domain in deployment.cluster.whole.spec.domains),
        gpus_used=layout.gpus_used,
        ep=layout.ep if deployment.model.moe else None,
        in_domain=all(len(domains) == 1 for domains in spread),
        away_share=plan and away_share(plan),
        expert_read_bytes_per_step=plan and expert_read_bytes(plan, placement.batch(0)),
        hop_bytes_per_step=slowest and slowest.bytes * layout.stages,
        hop_bytes_per_s=slowest and slowest.bytes_per_s,
        balancedness=mean_of(plan.balancedness.values()) if plan and plan.balancedness else None,
        reason=placement.reason,
    )


def placed_blocks(result: Comparison, table: Table) -> Iterator[Block]:
    """Yield the plan of each cluster at the compared speed: to one scale, its figures and proof."""
    if result.placements:
        yield racks_picture(result.placements, "The clusters to one scale")
    yield replace(table, max_rows=None, across=True)
    reasons = (f"{row['cluster']}: {row['reason']}" for row in table.rows if row["reason"])
    yield from (Note(text, kind="method") for text in reasons)
    yield Note(_METHOD if result.placed_by else "", kind="method")
    yield from (Note(text, kind="method") for text in _traffic_changes(table.rows))
    yield from _groups(result)


def expert_blocks(result: Comparison, table: Table) -> Iterator[Block]:
    """Yield a section for each cluster with the experts of one replica on its GPUs."""
    for placement, row in zip(result.placements, table.rows, strict=True):
        if placement.plan is not None and (experts := expert_map(placement.plan)):
            title = f"Experts on GPUs: {row['cluster']}"
            yield replace(table, rows=[row], title=title, max_rows=None, shown="layout ep balancedness gap")
            yield experts


def _traffic_changes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how the weights that a GPU reads, and what tokens send, differ from those of the first cluster."""
    known = [row for row in rows if row["expert_read_bytes_per_step"]]
    sides = [{**row, "step_s": (row["dispatch_s"] or 0.0) + (row["combine_s"] or 0.0)} for row in known]
    for side in sides[1:]:
        base, *clauses = sides[0], *(f"{row['cluster']} by {row['ep']:,}" for row in (side, sides[0]))
        for key, words in _TRAFFIC_WORDS.items():
            if phrase(side, key) != phrase(base, key):
                clauses.append(words.format(f"{phrase(side, key)} instead of {phrase(base, key)}"))
        yield (
            f"At the compared speed the experts of a layer are read on {clauses[0]} GPUs at once, on "
            f"{'; '.join(clauses[1:])}."
        )


def _groups(result: Comparison) -> Iterator[Block]:
    """Yield over how many GPUs the frontiers spread the experts of a layer, and where smaller domains cannot."""
    points = [(name, point) for name, frontier in result.frontiers.items() for point in frontier]
    if result.deployments[0].model.moe is None or not points:
        return
    table = Table.of("", "cluster tok_s_per_user ep")(
        (name, point.tok_s_per_user, point.ep) for name, point in points
    )
    line = Layer("line", table, "tok_s_per_user", "ep", "cluster")
    yield Chart("GPUs that read the experts of a layer at once", [line], log="xy")
    clusters = [side.cluster for side in result.deployments]
    sizes = {cluster.name: max(domain.gpus for domain in cluster.spec.domains) for cluster in clusters}
    least = min(sizes.values())
    for name, size in sizes.items():
        wide = [point.tok_s_per_user for of, point in points if of == name and least < point.ep <= size]
        if wide:
            yield Note(
                f"Between {number(min(wide))} and {number(max(wide))} tok/s/user best layouts of {name} spread the "
                f"experts of a layer over more than {least} GPUs of one domain.",
                kind="method",
            )
