"""Where a page comes from: the command that makes it again, every input, every figure with its source, each once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.money.bill import Bill
from placement.analysis.evidence import UsedFigure
from rackplan.report.notes import load_names, phase_words, serving_words
from rackplan.views.blocks import Block, Heading, Items, Page, Table, Text
from rackplan.views.money import watts
from rackplan.views.settings import set_words
from topology.base.units import plural

Row = tuple[str, str]


def inputs_section(command: str, rows: Iterable[Row], sha256: Mapping[str, str] | None = None) -> list[Block]:
    """Return the command that makes a page again, and what it was made of, folded."""
    digests = [(f"SHA-256 of {name}", digest) for name, digest in (sha256 or {}).items()]
    table = Table(("input", "value"), [*rows, *digests, ("command", command)], words=(0, 1))
    return [
        Heading("Inputs and command", 2, folded=True),
        Text("Command that recreates this report:"),
        Text(command, style="command"),
        Page([table], fold="All inputs"),
    ]


def deployment_rows(deployment: Deployment, loads: ExpertLoads | None) -> list[Row]:
    """Return what is served and on what: model, formats, cluster, workload, prices, loads."""
    model, workload, cluster = deployment.model, deployment.workload, deployment.cluster
    routed = ("experts", "shared", "router") if model.moe is None else ()
    kinds = by_dtype({part: dtype for part, dtype in model.precision.items() if part not in routed})
    weights = "; ".join(f"{dtype}: {', '.join(parts)}" for dtype, parts in kinds.items())
    served = [f"{phase_words(workload)}, KV cache {workload.kv_dtype}"]
    served += serving_words(workload, deployment.engine)
    size = f"{model.total_params / 1e9:.1f} B parameters, {model.active_params / 1e9:.1f} B active"
    config = json.dumps({name: value for name, value in model.config.items() if name != "rackplan"})
    domains = plural(len(cluster.spec.domains), "domain")
    changed = set_words(cluster)
    return [
        ("model", f"{model.name}: {size}"),
        ("config.json", config),
        ("precision", f"{weights} ({model.precision_source})"),
        ("cluster", f"{cluster.name}: {plural(len(cluster.gpus), 'GPU')} in {domains}"),
        *([("set by the user", changed)] if changed else []),
        ("workload", "; ".join(served)),
        ("loads", load_names(loads.names) if loads is not None else "none, no routed experts"),
        ("price basis", deployment.bill.price_basis),
    ]


def by_dtype(precision: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the parts of a model by their format."""
    kinds: dict[str, list[str]] = {}
    for part, dtype in precision.items():
        kinds.setdefault(dtype, []).append(part)
    return kinds


def figures_section(
    figures: Sequence[UsedFigure], bills: Sequence[Bill], notes: Sequence[str], assumptions: Sequence[str]
) -> list[Block]:
    """Return every figure with its value and kind, and the number of its source; each source is listed once."""
    priced = [row for bill in bills for row in bill_figures(bill)]
    rows: list[tuple[str, str, str, str, str]] = [
        (used.of or used.group, used.name, used.shown, used.figure.kind.label, used.figure.source)
        for used in figures
    ]
    rows = list(dict.fromkeys([*rows, *priced]))
    sources = list(dict.fromkeys(row[-1] for row in rows if row[-1]))
    numbers = {source: f"[{number}]" for number, source in enumerate(sources, 1)}
    table = Table(
        ("of", "figure", "value", "kind", "source"),
        [(*row[:-1], numbers.get(row[-1], "-")) for row in rows],
        words=(0, 1, 3, 4),
    )
    return [
        Heading("Sources of figures", 2, folded=True),
        *map(Text, notes),
        Page(
            [table, Items([f"{numbers[source]} {source}" for source in sources])],
            fold=f"All {len(rows)} figures and their {plural(len(sources), 'source')}",
        ),
        *([Page([Items(assumptions)], fold=f"{len(assumptions)} assumptions")] if assumptions else []),
    ]


def bill_figures(bill: Bill) -> list[tuple[str, str, str, str, str]]:
    """Return the price and the power of each part that is paid for: of what, which, value, kind, source."""
    return [
        (part.name, name, shown(figure.value), figure.kind, figure.source)
        for part in bill.parts
        for name, figure, shown in (
            (f"price, {bill.price_basis}", part.usd_per_hour, lambda value: f"{value:g} USD/h"),
            ("power", part.power_w, watts),
        )
        if figure is not None
    ]
