"""A specification as plain data: nothing is lost, nothing unchecked comes in."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest

from topology import InputError, resolve_cluster, spec_from_dict, spec_to_dict
from topology.base.schema import changed

Path = tuple[str | int, ...]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("name",), ""),
        (("domains", 0, "count"), 0),
        (("domains", 0, "gpus"), 10),
        (("domains", 0, "structure"), "lattice"),
        (("domains", 0, "gpu", "figures", "hbm_bytes", "value"), float("nan")),
        (("domains", 0, "gpu", "figures", "hbm_bytes", "kind"), "guessed"),
        (("domains", 0, "fabric", "link_bytes_per_s", "value"), -1.0),
        (("scale_out",), None),
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


@pytest.mark.parametrize(
    "fault",
    [
        {},
        {"link": ["d0.n0.g0"]},
        {"gpu": "d0.n0.g1", "factor": float("nan")},
    ],
)
def test_faults_that_cannot_be(fault: object) -> None:
    data = spec_to_dict(resolve_cluster("hgx-h100@16").spec)
    data["faults"] = [fault]
    with pytest.raises(InputError, match=r"^cluster: faults\[0\]: "):
        spec_from_dict(data)


@pytest.mark.parametrize("key", ["structure", "kind"])
def test_raw_needs_its_graph(key: str) -> None:
    data: Any = spec_to_dict(resolve_cluster("hgx-h100@16").spec)
    place = data["domains"][0] if key == "structure" else data["scale_out"]
    place[key] = "raw"
    with pytest.raises(InputError, match="under `raw`"):
        spec_from_dict(data)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("tpu-v5p", "wrap", [True, 1, True]),
        ("tpu-v5p", "node_shape", [2, 2]),
        ("mi300x", "links_per_neighbour", 0),
        ("helios-72", "links_bundled", "yes"),
    ],
)
def test_structures_that_cannot_be(name: str, key: str, value: object) -> None:
    data: Any = spec_to_dict(resolve_cluster(name).spec)
    assert spec_from_dict(data)
    data["domains"][0][key] = value
    with pytest.raises(InputError):
        spec_from_dict(data)


def test_what_is_equal_is_one_key_and_files_name_what_is_wrong() -> None:
    domain = resolve_cluster("hgx-h100").spec.domains[0]
    same = replace(domain, notes=domain.notes)
    assert same is not domain
    assert (same, hash(same)) == (domain, hash(domain))
    assert pickle.loads(pickle.dumps(domain)) == domain  # noqa: S301 - our own
    with pytest.raises(InputError, match="SwitchDomain: 9 GPUs do not fill whole nodes of 8"):
        replace(domain, gpus=9)
    with pytest.raises(InputError, match=r"^here: 9 GPUs do not fill whole nodes of 8"):
        changed(domain, "here", gpus=9)
    data: Any = spec_to_dict(resolve_cluster("hgx-h100@16").spec)
    data["domains"][0]["links_per_swich"] = [1]
    with pytest.raises(
        InputError,
        match=r"^cluster: domains\[0\]: unknown key `links_per_swich`; did you mean links_per_switch",
    ):
        spec_from_dict(data)
