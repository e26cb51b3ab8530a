"""A GPU whose NIC is gone hands its bytes over to the others of its node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers import link_loads
from topology import Cluster, Fault, InfeasibleError, build_cluster, resolve_cluster


def without_nics(*gpus: int) -> Cluster:
    spec = resolve_cluster("hgx-h100@16").spec
    cut = tuple(Fault(link=(f"d0.n0.g{gpu}", f"f.p0.l{gpu}")) for gpu in gpus)
    return build_cluster(replace(spec, faults=cut))


def test_one_pair_each_way_goes_through_the_seven_others() -> None:
    cluster = without_nics(1)
    matrix = np.zeros((16, 16))
    matrix[1, 9] = 7e9  # from the GPU without a NIC
    matrix[12, 1] = 14e9  # to it
    loads = link_loads(cluster, matrix)
    out = sum(loads.of(f"d0.n0.g{gpu}", f"f.p0.l{gpu}") for gpu in range(8) if gpu != 1)
    back = sum(loads.of(f"f.p0.l{gpu}", f"d0.n0.g{gpu}") for gpu in range(8) if gpu != 1)
    assert (out, back) == (pytest.approx(7e9), pytest.approx(14e9))
    leaves = [loads.of("d0.n0.g1", f"d0.s{chip}") for chip in range(4)]
    assert sum(leaves) == pytest.approx(7e9)  # all of it over NVLink first
    assert any("1 GPU without a link out of its domain hands over" in note for note in loads.notes)


def test_a_domain_without_any_nic_is_cut_off() -> None:
    with pytest.raises(InfeasibleError, match="disconnect GPUs"):
        link_loads(without_nics(*range(8)), 1e9 * (1 - np.eye(16)))
