"""Units that repeat: their domains and faults, and what cannot repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topology import InputError, resolve_cluster
from topology.build import build_cluster, raw_cluster_spec
from topology.changes.repeat import alike, repeated
from topology.spec import Fault, RawLink, RawNode, RawTopology


def test_domains_follow_each_other_and_so_do_faults() -> None:
    spec = resolve_cluster("hgx-h100@16").spec
    unit = build_cluster(replace(spec, faults=(Fault(gpu="d1.n0.g3"), Fault(gpu="d0.n0.g0", factor=0.5))))
    twice = repeated(unit, 2)
    gone = {gpu.id for gpu in repeated(build_cluster(spec), 2).gpus} - {gpu.id for gpu in twice.gpus}
    assert gone == {"d1.n0.g3", "d3.n0.g3"}
    assert twice.spec.slow_gpus == {"d0.n0.g0": 0.5, "d2.n0.g0": 0.5}
    assert len(twice.gpus) == 2 * len(unit.gpus)
    assert repeated(unit, 1) is unit


def test_links_inside_domains_repeat() -> None:
    spec = resolve_cluster("hgx-h100").spec
    unit = build_cluster(replace(spec, faults=(Fault(link=("d0.n0.g0", "d0.s1"), factor=0.5),)))
    rates = [repeated(unit, 2).scale_up_bytes_per_s(gpu) for gpu in (0, 1, 8, 9)]
    assert rates[0] == rates[2] < rates[1] == rates[3]


def test_what_cannot_repeat_is_refused() -> None:
    spec = resolve_cluster("hgx-h100@16").spec
    leaf = next(name for name in build_cluster(spec).graph if name.startswith("f."))
    far = build_cluster(replace(spec, faults=(Fault(link=("d0.n0.g0", leaf), factor=0.5),)))
    with pytest.raises(InputError, match="spans domains"):
        repeated(far, 2)
    with pytest.raises(InputError, match="no `fabric` to connect"):
        repeated(build_cluster(replace(resolve_cluster("hgx-h100").spec, scale_out=None)), 2)
    with pytest.raises(InputError, match="at most 1,000,000"):
        repeated(build_cluster(spec), 100_000)
    with pytest.raises(InputError, match="1 unit or more"):
        repeated(build_cluster(spec), 0)


def test_a_raw_graph_does_not_repeat() -> None:
    spec = resolve_cluster("hgx-h100").spec
    gpu = spec.domains[0].gpu
    nodes = tuple(RawNode(f"g{i}", "gpu", domain="a", gpu=gpu) for i in range(2))
    raw = RawTopology(nodes, (RawLink(("g0", "g1"), spec.domains[0].fabric),))
    unit = build_cluster(raw_cluster_spec("two", raw))
    with pytest.raises(InputError, match="cannot be repeated"):
        repeated(unit, 2)
    assert not alike(unit.spec)
