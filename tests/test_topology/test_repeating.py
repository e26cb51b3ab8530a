"""Rows of raw files that repeat: unrolled as they say, rolled where they do, in the same order both ways."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import InputError
from topology.cluster_file import read_cluster_file
from topology.exporters import cluster_to_yaml
from topology.exporters.rolled import rolled
from topology.reading import Fields
from topology.repeating import repeating_rows

ROWS = """
name: hosts
nodes:
- repeat: {h: 08-10}
  nodes:
  - {id: "n{h}.g{g}", kind: gpu, domain: "n{h}", node: "n{h}", rail: "{g}", gpu: h100-sxm, repeat: {g: 2}}
  - {id: "n{h}.s", kind: switch, domain: "n{h}"}
- {id: "leaf{l}", kind: leaf, repeat: {l: [a, b]}}
- {id: "{spine}", kind: spine}
links:
- {between: ["n{h}.g{g}", "n{h}.s"], fabric: nvlink4, count: 18, repeat: {h: 08-10, g: 0-1}}
- {between: ["n{h}.g0", leafa], fabric: ib-ndr400, repeat: {h: "08,10"}}
- {between: ["n{h+1}.g1", leafb], rate: 400 Gb/s, repeat: {h: 07-09}}
- {between: ["leaf{l}", "{{spine}}"], fabric: ib-ndr400, count: 2, repeat: {l: [a, b]}}
"""


def unrolled(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Rows as they are read, each with its texts filled in."""
    found = []
    for row, copy in repeating_rows(Fields({key: rows}, "c.yaml"), key, empty=True):
        values: dict[str, Any] = {}
        for name, value in row.fields.data.items():
            if isinstance(value, list):
                values[name] = [row.filled(row.text(name, end, set()), copy) for end in value]
            elif isinstance(value, str):
                text = row.filled(row.text(name, value, set()), copy)
                values[name] = int(text) if name == "rail" else text
            else:
                values[name] = value
        found.append(values)
    return found


def test_rows_and_groups_stand_for_every_value(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(ROWS)
    raw = read_cluster_file(path).raw
    assert raw is not None
    assert [node.id for node in raw.nodes] == [
        *(f"n{h}.{name}" for h in ("08", "09", "10") for name in ("g0", "g1", "s")),
        "leafa",
        "leafb",
        "{spine}",
    ]
    assert [node.rail for node in raw.nodes[:3]] == [0, 1, None]
    ends = [link.between for link in raw.links]
    assert ends[:2] == [("n08.g0", "n08.s"), ("n08.g1", "n08.s")]
    assert ends[6:] == [
        ("n08.g0", "leafa"),
        ("n10.g0", "leafa"),
        *((f"n{h}.g1", "leafb") for h in ("08", "09", "10")),
        ("leafa", "{spine}"),
        ("leafb", "{spine}"),
    ]
    # what is not said of a link goes by its ends: NVLink's latency inside a domain, a NIC's outside
    assert raw.links[0].fabric.latency_s != raw.links[8].fabric.latency_s


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "catalog.md").read_text()
    (block,) = [
        one for one in re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) if "repeat:" in one
    ]
    path = tmp_path / "c.yaml"
    path.write_text(block)
    spec = read_cluster_file(path)
    assert spec.raw is not None
    assert (spec.gpus, len(spec.raw.nodes), len(spec.raw.links)) == (128, 202, 16 * 32 + 127 + 16)


def test_what_repeats_is_written_so_and_read_back_the_same(tmp_path: Path) -> None:
    hosts, lost = 40, ("n07.g3", "leaf3")
    nodes = [
        f"- {{id: n{h:02d}.g{g}, kind: gpu, domain: n{h:02d}, rail: {g}, gpu: h100-sxm}}"
        for h in range(hosts)
        for g in range(4)
    ]
    nodes += [f"- {{id: leaf{i}, kind: leaf}}" for i in range(8)] + ["- {id: spine, kind: spine}"]
    pairs = [(f"n{h:02d}.g{g}", f"n{h:02d}.g{k}") for h in range(hosts) for g in range(4) for k in range(g)]
    pairs += [(f"n{h:02d}.g{g}", f"leaf{h // 20 * 4 + g}") for h in range(hosts) for g in range(4)]
    pairs += [(f"leaf{i}", "spine") for i in range(8)]
    links = [
        f"- {{between: [{a}, {b}], fabric: {'nvlink4' if 'g' in b else 'ib-ndr400'}}}"
        for a, b in pairs
        if (a, b) != lost
    ]
    path = tmp_path / "c.yaml"
    path.write_text("\n".join(["name: x", "nodes:", *nodes, "links:", *links, ""]))
    spec = read_cluster_file(path)
    text = cluster_to_yaml(spec)
    path.write_text(text)
    assert read_cluster_file(path) == spec
    assert cluster_to_yaml(read_cluster_file(path)) == text
    assert text.count("\n") < 25 < len(nodes) + len(links)


_NUMBERS = st.sampled_from(["0", "1", "2", "3", "7", "8", "9", "10", "11", "00", "01", "09", "123456789012"])
_TEXTS = st.tuples(st.sampled_from(["n", "{", "a}"]), _NUMBERS, st.sampled_from(["", ".g"]), _NUMBERS).map(
    "".join
)


@settings(deadline=None)
@given(st.lists(st.tuples(_TEXTS, _TEXTS, st.integers(0, 3)), max_size=12), st.integers(1, 4))
def test_any_rows_are_conserved(rows: list[tuple[str, str, int]], times: int) -> None:
    links = [{"between": [a, b], "count": count} for a, b, count in rows] * times
    assert unrolled(rolled("links", links), "links") == links
    nodes = [{"id": a, "kind": "gpu", "node": b, "rail": count} for a, b, count in rows] * times
    assert unrolled(rolled("nodes", nodes), "nodes") == nodes


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 40),
)
def test_loops_are_conserved_and_short(loops: list[tuple[int, int]], padded: bool, lost: int) -> None:
    width = 2 if padded else 1
    rows: list[dict[str, Any]] = [{"id": "n"}]
    for size, first in loops:
        rows = [
            {"id": f"{row['id']}.x{number:0{width}d}", "rail": number - first}
            for row in rows
            for number in range(first, first + size)
        ]
    if len(rows) > 1:
        rows.pop(lost % len(rows))
    found = rolled("nodes", rows)
    assert unrolled(found, "nodes") == rows
    assert len(found) <= max(1, math.prod(size for size, _ in loops))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"n{h}.g0", leafa', '"n{x}.g0", leafa', "{x} is no counter of its `repeat` [(]h[)]"),
        ('"n{h}.g0", leafa', '"n08.g0", leafa', "does not use its counter {h}"),
        ('"n{h}.s", kind', '"n.s", kind', "does not use its counter {h}"),
        ('"{{spine}}"', '"{spine"', "has a single brace"),
        ("{h: 07-09}", "{h: 09-07}", "runs backwards"),
        ("{h: 07-09}", "{h: 07-x}", "is not a number or range"),
        ("{h: 07-09}", "{}", "names no counter"),
        ("{h: 07-09}", "{h-1: 07-09}", "a counter's name is a letter"),
        ("{h: 07-09}", '{h: "07,07"}', "twice"),
        ("{h: 07-09}", "{h: 0}", "a whole number from 1"),
        ("{h: 07-09}", "{h: [a, b, c]}", "the values of h are no numbers"),
        ("n{h+1}.g1", "n{h-9}.g1", "is below zero"),
        ("{h: 07-09}", "{h: 200000, k: 2000}", "at most 1,000,000 are supported"),
        ("repeat: {g: 2}", "repeat: {h: 2}", "a group around it has a counter of that name"),
        ('rail: "{g}"', 'rail: "r{g}"', "'r0' is no number"),
        ("repeat: {h: 08-10}\n", "repeat: {h: 08-10}\n  kind: x\n", "unknown key `kind`"),
    ],
)  # fmt: skip
def test_what_cannot_repeat_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in ROWS
    path = tmp_path / "c.yaml"
    path.write_text(ROWS.replace(old, new, 1))
    with pytest.raises(InputError, match=problem):
        read_cluster_file(path)
