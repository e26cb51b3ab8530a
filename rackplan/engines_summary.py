"""What a person reads after an export, an import or a check of an engine's plan file."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from placement.engines.export import Exported
from placement.engines.mapping import Place
from placement.engines.registry import Checked
from rackplan.words import underlined, wrapped

_WORDS = {"refused": "NOT LOADED", "wrong": "WRONG", "note": "note"}
MOST_NODES = 8
"""Nodes whose GPUs a summary lists; ``--json`` has all."""


def export_summary(exported: Exported) -> str:
    """The summary of ``rackplan export``."""
    engine, mapping = exported.engine, exported.mapping
    lines = [
        *underlined(
            f"{exported.launch.model} for {engine.title}" + " (NOT RELEASED)" * (not engine.released)
        ),
        *wrapped("File", exported.launch.file),
        *wrapped(
            "Experts",
            f"{mapping.experts} in {mapping.slots} slots per layer ({mapping.slots_per_rank} a GPU, "
            f"{mapping.redundant} redundant copies), {len(mapping.layer_ids)} MoE layers, EP {mapping.ranks}",
        ),
        *wrapped("Checked with", engine.version),
        *wrapped("Split", f"the engine splits an expert's tokens {engine.split_words}"),
        *wrapped("", f"the plan expects {exported.launch.split}"),
        *wrapped(
            "Balancedness",
            f"{exported.balancedness:.4f} under the plan's loads as the engine splits them (planned: "
            f"{exported.planned:.4f})",
        ),
        "",
        "Start with",
        *(f"  {line}" for line in _shell(exported.flags)),
        "",
        *_order(exported.places),
    ]
    for warning in exported.warnings:
        lines += wrapped("Warning", warning)
    return "\n".join(lines)


def _shell(flags: tuple[str, ...]) -> list[str]:
    """Lines as a shell takes them; those of a file as they are."""
    if not any(line.startswith("--") for line in flags):
        return list(flags)
    return [*(line if line.startswith("#") else f"{line} \\" for line in flags[:-1]), flags[-1]]


def _order(places: tuple[Place, ...]) -> list[str]:
    """Which GPU is which rank, a line a node."""
    lines = wrapped(
        "GPU order", "rank r of the engine runs on this GPU; slots of a rank are in the file's order"
    )
    runs = [list(run) for _, run in groupby(places, key=lambda place: (place.replica, place.node))]
    several = any(place.replica for place in places)
    for run in runs[:MOST_NODES]:
        first, last = run[0], run[-1]
        replica = f"replica {first.replica}, " if several else ""
        ranks = f"ranks {first.rank}-{last.rank}" if last.rank > first.rank else f"rank {first.rank}"
        lines += wrapped("", f"{replica}{ranks}: {', '.join(place.gpu for place in run)}")
    if len(runs) > MOST_NODES:
        lines += wrapped("", f"and {len(runs) - MOST_NODES} more nodes in the same order (--json lists all)")
    return lines


def export_json(exported: Exported) -> dict[str, Any]:
    """What ``rackplan export --json`` prints."""
    engine, mapping, launch = exported.engine, exported.mapping, exported.launch
    return {
        "engine": engine.name,
        "file": launch.file,
        "version": engine.version,
        "released": engine.released,
        "split": {"engine": list(engine.splits), "plan": launch.split, "how": engine.split_words},
        "balancedness": {"engine": exported.balancedness, "plan": exported.planned},
        "experts": mapping.experts,
        "slots": mapping.slots,
        "redundant": mapping.redundant,
        "slots_per_gpu": mapping.slots_per_rank,
        "moe_layers": len(mapping.layer_ids),
        "ep": mapping.ranks,
        "flags": list(exported.flags),
        "warnings": list(exported.warnings),
        "ranks": [
            {"replica": place.replica, "stage": place.stage, "rank": place.rank, "gpu": place.gpu}
            for place in exported.places
        ],
    }


def check_summary(checked: Checked) -> str:
    """The summary of ``rackplan check``."""
    lines = [*underlined(f"{checked.file} for {checked.engine.title}")]
    lines += wrapped("Checked with", checked.engine.version)
    lines += wrapped("Loads", "yes" if checked.loads else "no")
    lines += wrapped("Right", "yes" if checked.right else "no")
    lines.append("")
    for finding in checked.findings:
        lines += wrapped(_WORDS[finding.kind], f"{finding.where}: {finding.what}")
    return "\n".join(lines)


def check_json(checked: Checked) -> dict[str, Any]:
    """What ``rackplan check --json`` prints."""
    return {
        "engine": checked.engine.name,
        "loads": checked.loads,
        "right": checked.right,
        "version": checked.engine.version,
        "findings": [
            {"where": finding.where, "what": finding.what, "kind": finding.kind}
            for finding in checked.findings
        ],
    }
