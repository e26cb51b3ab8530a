"""Sections of a plan's report: each of the loads, what one failure would do, and how many copies."""

from __future__ import annotations

from placement.failures import TOP
from placement.findings import Failures, RedundancyCurve, ScenarioReport
from rackplan.findings_summary import (
    UNITS,
    WHAT_IF_HEADER,
    at_risk_words,
    scenario_cells,
    scenario_note,
    what_if_cells,
    what_if_note,
)
from rackplan.redundancy_summary import HEADER as COPIES_HEADER
from rackplan.redundancy_summary import redundancy_rows
from rackplan.report.html import Markup, element, join, table
from rackplan.report.page import chart
from rackplan.report.redundancy_chart import redundancy_chart


def scenarios_section(report: ScenarioReport) -> Markup:
    """Return balancedness under each of the loads, in-sample and left out."""
    over = "mean" if report.objective == "mean" else "worst"
    return join(
        [
            element("h2", "Each of the loads"),
            element(
                "p",
                f"Planned for the least {over} over {len(report.rows)} loads of the largest GPU load. What holds on "
                f"loads not seen is the column left out. {scenario_note(report)}",
            ),
            table(
                ("loads", "in-sample", "left out", "worst layer"),
                scenario_cells(report),
                caption="Balancedness, mean over MoE layers",
            ),
        ]
    )


def failures_section(failures: Failures) -> Markup:
    """Return what losing any one GPU, node or rack would do, and the experts that one failure would kill."""
    unit = UNITS[failures.spread]
    layers = [
        (
            str(row.layer),
            str(row.experts),
            f"{row.share:.2%}",
            row.worst or "-",
            str(row.worst_experts),
            f"{row.worst_share:.2%}",
        )
        for row in failures.layers
    ]
    heaviest = [
        (str(row.layer), str(row.expert), str(row.copies), f"{row.share:.3%}", row.domain)
        for row in failures.experts
    ]
    note = what_if_note(failures)
    return join(
        [
            element("h2", "After a failure"),
            table(
                WHAT_IF_HEADER,
                [what_if_cells(row) for row in failures.what_if],
                words=(0, 7),
                caption="Losing any one: the mean, and the worst",
            ),
            element(
                "p",
                "Experts keep the copies that are left; tokens of those without one are dropped. Throughput is over "
                f"all GPUs given, the lost ones too. {note}",
                class_="note",
            ),
            element("p", f"At risk: {at_risk_words(failures)}."),
            table(
                ("layer", "expert", "copies", "of the layer's tokens", unit),
                heaviest,
                words=(4,),
                caption=f"Experts with all copies in one {unit}: the heaviest {min(TOP, len(heaviest))}",
            )
            if heaviest
            else None,
            element(
                "details",
                element("summary", "By layer"),
                table(
                    (
                        "layer",
                        "experts at risk",
                        "of its tokens",
                        f"worst {unit}",
                        "its experts",
                        "its tokens",
                    ),
                    layers,
                    words=(3,),
                ),
            ),
        ]
    )


def redundancy_section(curve: RedundancyCurve) -> Markup:
    """Return throughput against copies, where their number was chosen."""
    return join(
        [
            element("h2", "How many copies"),
            chart(
                "redundancy",
                redundancy_chart(curve),
                says="Throughput against copies per layer, the choice and the knee marked",
                height=360,
            ),
            table(COPIES_HEADER, redundancy_rows(curve), words=(7,)),
        ]
    )
