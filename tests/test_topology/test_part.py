"""A part of a cluster: ids, links and faults of the whole, and what of it is ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topology import InputError, resolve_cluster
from topology.build import build_cluster
from topology.part import part_of
from topology.schema import spec_from_dict, spec_to_dict
from topology.spec import Fault


def test_ids_and_links_are_those_of_the_whole() -> None:
    whole = resolve_cluster("gb200-nvl72@144")
    part = part_of(whole, [*range(72, 144), 0, 1, 2, 3, 4])
    assert part.spec.part == ("d0.n0", "d0.n1.g0", "d1")
    assert [gpu.id for gpu in part.gpus[:5]] == [gpu.id for gpu in whole.gpus[:5]]
    assert part.gpus[5].domain == 1
    assert len(part.gpus) == 77
    assert set(part.graph) == set(whole.graph)


def test_it_is_read_back() -> None:
    part = part_of(resolve_cluster("hgx-h100@16"), range(4, 12), "mine")
    again = build_cluster(spec_from_dict(spec_to_dict(part.spec)))
    assert (again.name, again.gpus) == ("mine", part.gpus)


def test_a_node_with_a_broken_gpu_is_named_by_what_works() -> None:
    whole = resolve_cluster("gb200-nvl72@72")
    less = build_cluster(replace(whole.spec, faults=(Fault(gpu="d0.n0.g1"),)))
    part = part_of(less, range(7))
    assert part.spec.part == ("d0.n0", "d0.n1")
    assert len(part.gpus) == 7


def test_what_is_not_there_is_refused() -> None:
    spec = replace(resolve_cluster("hgx-h100@16").spec, part=("d7",))
    with pytest.raises(InputError, match="'d7'"):
        build_cluster(spec)
