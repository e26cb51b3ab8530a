"""A specification as plain data: nothing is lost, nothing unchecked comes in."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import InputError, cluster_names, resolve_cluster, spec_from_dict, spec_to_dict


@pytest.mark.parametrize("name", cluster_names())
def test_there_and_back_through_json(name: str) -> None:
    spec = resolve_cluster(name).spec
    assert spec_from_dict(json.loads(json.dumps(spec_to_dict(spec)))) == spec


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 100))
def test_domains_in_a_row_are_written_once(nodes: int) -> None:
    spec = resolve_cluster(f"gb200-nvl72@{4 * nodes}").spec
    data = spec_to_dict(spec)
    assert len(data["domains"]) <= 2
    assert spec_from_dict(data) == spec


Path = tuple[str | int, ...]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("name",), ""),
        (("domains",), []),
        (("domains", 0, "count"), 0),
        (("domains", 0, "count"), 1e3),
        (("domains", 0, "gpus"), 10),
        (("domains", 0, "gpus"), -72),
        (("domains", 0, "structure"), "lattice"),
        (("domains", 0, "links_per_switch"), [1, "1"]),
        (("domains", 0, "gpu", "figures", "hbm_bytes", "value"), float("nan")),
        (("domains", 0, "gpu", "figures", "hbm_bytes", "value"), "185 GiB"),
        (("domains", 0, "gpu", "figures", "hbm_bytes", "kind"), "guessed"),
        (("domains", 0, "gpu", "figures", "hbm_bytes", "unit"), "GB"),
        (("domains", 0, "fabric", "link_bytes_per_s", "value"), -1.0),
        (("domains", 0, "colour"), "red"),
        (("scale_out",), None),
        (("scale_out", "kind"), "butterfly"),
        (("scale_out", "spines"), 0),
    ],
)
def test_what_cannot_be_is_refused(path: Path, value: object) -> None:
    data: Any = copy.deepcopy(spec_to_dict(resolve_cluster("gb200-nvl72@144").spec))
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError, match="plan"):
        spec_from_dict(data, "plan.json: cluster")


def test_a_missing_key_is_named() -> None:
    data = spec_to_dict(resolve_cluster("hgx-h100").spec)
    del data["domains"][0]["gpu"]["title"]
    with pytest.raises(InputError, match="needs the key `title`"):
        spec_from_dict(data)
