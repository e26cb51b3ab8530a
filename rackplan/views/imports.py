"""An import: what was found, what the user or the catalog gave, and what is unlike its siblings."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from rackplan.output import with_flags
from rackplan.views.blocks import WIDTH, Lines, View, sections
from topology.importers import Imported
from topology.importers.hostlist import compress_hosts
from topology.units import format_quantity

_MOST_SHOWN = 40


def import_view(imported: Imported, output: Path) -> View:
    """Return what ``rackplan import`` says."""
    files = [f"{file.name} ({file.kind}): {' '.join(file.notes)}" for file in imported.files]
    count, taken = len(imported.anomalies), "Taken from you or the catalog, as no file says it"
    shown = _items(*imported.anomalies[:_MOST_SHOWN])
    if count > _MOST_SHOWN:
        shown.append(f"  ... and {count - _MOST_SHOWN} more: all are in {output.name}")
    form = "nodes and links" if imported.spec.raw is not None else "domains and fabric"
    blocks = sections(
        [Lines(["Read", *_items(*files)])],
        [Lines(["Found", *_items(_found(imported))])],
        [Lines([taken, *_items(*imported.taken)])] if imported.taken else [],
        [Lines([f"Unlike the rest: {count}" if count else "Nothing is unlike the rest", *shown])],
        [Lines([f"Wrote {output} ({form}); look at it: rackplan draw {output} -o {output.stem}.svg"])],
    )
    return View(blocks, _data(imported, output))


def import_comments(imported: Imported, version: str) -> list[str]:
    """Return the comments at the top of the cluster file."""
    lines = [f"Imported by rackplan {version}."]
    lines += [f"Read {file.name} ({file.kind}): {' '.join(file.notes)}" for file in imported.files]
    lines += [f"Taken: {taken}" for taken in imported.taken]
    lines += [f"Unlike the rest: {anomaly}" for anomaly in imported.anomalies]
    if imported.hosts:
        lines.append(f"Hosts in order (d0.n0, d0.n1, ...): {compress_hosts(imported.hosts)}")
    return lines


def _data(imported: Imported, output: Path) -> dict[str, Any]:
    return {
        "file": str(output),
        "form": "raw" if imported.spec.raw is not None else "regular",
        "gpus": imported.spec.gpus,
        "domains": len(imported.spec.domains),
        "hosts": sum(len(hosts) for hosts in imported.domains.values()),
        "read": [
            {"name": file.name, "kind": file.kind, "notes": list(file.notes)} for file in imported.files
        ],
        "taken": list(imported.taken),
        "anomalies": list(imported.anomalies),
    }


def _found(imported: Imported) -> str:
    """Say how much there is."""
    spec = imported.spec
    gpus = Counter(domain.gpu.name for domain in spec.domains for _ in range(domain.gpus))
    hosts = sum(len(members) for members in imported.domains.values())
    sizes = Counter(domain.gpus for domain in spec.domains)
    shape = ", ".join(f"{count} of {size}" for size, count in sizes.most_common(6))
    rate = format_quantity(min(domain.scale_up_bytes_per_s for domain in spec.domains), "byte/s")
    words = [
        f"{sum(gpus.values()):,} GPUs ({', '.join(gpus)}) in {hosts} hosts",
        f"{len(spec.domains)} scale-up domains ({shape} GPUs)",
        f"scale-up at least {rate} each way per GPU",
    ]
    if spec.scale_out is not None:
        words.append(f"scale-out at least {format_quantity(spec.scale_out.scale_out_bytes_per_s, 'byte/s')}")
    if spec.raw is not None:
        kinds = Counter(node.kind for node in spec.raw.nodes if node.kind != "gpu")
        words.append(", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no switches")
    return "; ".join(words) + "."


def _items(*texts: str) -> list[str]:
    """Return indented paragraphs."""
    wrapper = textwrap.TextWrapper(
        WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [line for text in texts for line in wrapper.wrap(with_flags(text))]
