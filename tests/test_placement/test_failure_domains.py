"""Failure domains: what is in which, what lies in one in some replica, and what cannot be kept apart."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cost.resolve import resolve_model
from cost.setting import Setting
from cost.workload import Workload
from placement.failure_domains import failure_domains, numbered_domains, require_apart, stage_domains
from topology import resolve_cluster
from topology.errors import InfeasibleError

SETTING = Setting(resolve_cluster("gb200-nvl72@144"), resolve_model("gpt-oss-20b"), Workload(batch=1))


def test_gpus_nodes_and_racks_of_a_cluster() -> None:
    assert failure_domains(SETTING, range(8), "gpu") is None
    assert numbered_domains(SETTING, "gpu").tolist() == list(range(144))
    nodes = failure_domains(SETTING, range(144), "node")
    racks = failure_domains(SETTING, range(144), "rack")
    assert nodes is not None
    assert racks is not None
    assert nodes.tolist() == [gpu // 4 for gpu in range(144)]
    assert racks.tolist() == [gpu // 72 for gpu in range(144)]


def test_replicas_that_lie_alike_keep_their_domains() -> None:
    found = stage_domains(SETTING, [range(8), range(8, 16)], "node")
    assert found is not None
    assert found.tolist() == [0] * 4 + [1] * 4
    assert stage_domains(SETTING, [range(8), range(8, 16)], "gpu") is None


def test_places_in_one_domain_of_some_replica_are_in_one() -> None:
    # the second replica begins in the middle of a node: places 0, 1 | 2, 3, 4, 5 | 6, 7
    found = stage_domains(SETTING, [range(8), range(10, 18)], "node")
    assert found is not None
    assert set(found.tolist()) == {0}
    apart = stage_domains(SETTING, [[0, 4, 8, 12], [16, 17, 20, 24]], "node")
    assert apart is not None
    assert [bool(apart[a] == apart[b]) for a, b in ((0, 1), (0, 2), (1, 2), (2, 3))] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("slots", [(1, 1, 1), (2, 1, 0), (2, 2, 1), (3, 1, 1), (2, 2, 2)])
def test_what_cannot_be_kept_apart_is_refused_and_nothing_else(slots: tuple[int, ...]) -> None:
    """Against all ways of filling the slots of three GPUs, the first two in one domain, with three experts."""
    experts, domains = 3, np.array([0, 0, 1])
    where = np.repeat(domains, slots)
    possible = any(
        set(row) == set(range(experts)) and len({*zip(row, where.tolist(), strict=True)}) == len(row)
        for row in product(range(experts), repeat=sum(slots))
    )
    if possible:
        require_apart(experts, np.array(slots), domains)
    else:
        with pytest.raises(InfeasibleError, match="at most --redundant 3 goes"):
            require_apart(experts, np.array(slots), domains)
