"""NVLink and xGMI elements of an NCCL topology: from GPUs to switch chips or to each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topology.importers.source import Source
from topology.importers.xml_tree import Element
from topology.reading import shown

_NOWHERE = re.compile(r"f+:ff:ff\.[0-9a-f]")
_BUSID = re.compile(r"[0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_GPU_CLASS = "0x0302"
_TAGS = ("nvlink", "xgmi")
_MOST_LINKS = 1024


@dataclass(frozen=True)
class LinksFound:
    """Links by name of GPU and chip, the chips, whether those are not told apart, and the technology."""

    links: tuple[tuple[str, str, int], ...]
    chips: tuple[str, ...]
    hidden: bool
    kind: str
    anomalies: tuple[str, ...]


def read_links(
    source: Source, names: Mapping[str, str], packages: Mapping[str, Sequence[Element]]
) -> LinksFound:
    """Return the scale-up links of all GPUs.

    Parameters
    ----------
    source:
        The file, for messages.
    names:
        Name of each GPU by PCI bus id.
    packages:
        The elements of each GPU by bus id: two where its dies are listed apart.

    Raises
    ------
    InputError
        If a target is not there, or two GPUs disagree on the links between them.
    """
    to_chip: Counter[tuple[str, str]] = Counter()
    to_gpu: Counter[tuple[str, str]] = Counter()
    anomalies: list[str] = []
    kinds: set[str] = set()
    for busid, elements in packages.items():
        for (tag, target), count in _of_package(source, busid, names, elements, anomalies).items():
            kinds.add(tag)
            (to_gpu if target in names else to_chip)[busid, target] += count
    hidden = any(_NOWHERE.fullmatch(chip) for _, chip in to_chip)
    targets = sorted({chip for _, chip in to_chip})
    chips = {chip: "switch" if hidden else f"switch{i}" for i, chip in enumerate(targets)}
    merged: Counter[tuple[str, str]] = Counter()
    for (busid, chip), count in to_chip.items():
        merged[names[busid], chips[chip]] += count
    for (a, b), count in _direct(source, names, to_gpu).items():
        merged[a, b] += count
    return LinksFound(
        links=tuple((a, b, count) for (a, b), count in merged.items()),
        chips=tuple(dict.fromkeys(chips.values())),
        hidden=hidden,
        kind="xgmi" if "xgmi" in kinds else "nvlink" if kinds else "pcie",
        anomalies=tuple(anomalies),
    )


def _of_package(
    source: Source,
    busid: str,
    names: Mapping[str, str],
    elements: Sequence[Element],
    anomalies: list[str],
) -> Counter[tuple[str, str]]:
    """Return (technology, target) of one package: dies share its links, so the larger count, not the sum."""
    package: Counter[tuple[str, str]] = Counter()
    for element in elements:
        own: Counter[tuple[str, str]] = Counter()
        for link in element.children:
            if link.tag not in _TAGS:
                continue
            target = attribute(source, link, "target").lower()
            count = whole(source, link, "count", _MOST_LINKS)
            _check_target(source, link, target, busid, names)
            if target == busid:
                anomalies.append(
                    f"{source.name}: line {link.line}: {names[busid]} links to itself; left out."
                )
            else:
                own[link.tag, target] += count
        package |= own
    return package


def _check_target(source: Source, link: Element, target: str, busid: str, names: Mapping[str, str]) -> None:
    """A target is a bus id, and that of a GPU is in the file."""
    if _NOWHERE.fullmatch(target):
        return
    if not _BUSID.fullmatch(target):
        raise source.error(link.line, f"link target {shown(target)} is no PCI bus id.")
    if link.attributes.get("tclass", "").lower().startswith(_GPU_CLASS) and target not in names:
        raise source.error(link.line, f"{names[busid]} links to GPU {target}, which is not in the file.")


def _direct(
    source: Source, names: Mapping[str, str], to_gpu: Counter[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Return links between GPUs, once each; both must count the same."""
    order = {busid: place for place, busid in enumerate(names)}
    for (a, b), count in to_gpu.items():
        back = to_gpu.get((b, a), 0)
        if back != count:
            raise source.error(
                None,
                f"{names[a]} lists {count} links to {names[b]}, but {names[b]} lists {back} to {names[a]}.",
            )
    return {(names[a], names[b]): count for (a, b), count in to_gpu.items() if order[a] < order[b]}


def attribute(source: Source, element: Element, name: str) -> str:
    """Return an attribute that must be there."""
    value = element.attributes.get(name, "").strip()
    if not value:
        raise source.error(element.line, f"<{element.tag}> has no `{name}`.")
    return value


def whole(source: Source, element: Element, name: str, most: int, *, least: int = 1) -> int:
    """Return an attribute that must be a whole number within limits."""
    text = attribute(source, element, name)
    if not re.fullmatch(r"\d{1,12}", text) or not least <= int(text) <= most:
        raise source.error(
            element.line,
            f"<{element.tag} {name}={shown(text)}> must be a whole number from {least} to {most}.",
        )
    return int(text)
