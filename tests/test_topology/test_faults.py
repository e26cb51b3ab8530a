"""What is broken or degraded: gone from the graph, kept by name, and never a guess."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cost.inputs.machine import stage_rates
from graph_contract import validate_graph
from topology import (
    Fault,
    InfeasibleError,
    InputError,
    MissingFigureError,
    build_cluster,
    resolve_cluster,
)
from topology.cluster import Cluster


def broken(name: str, *faults: Fault) -> Cluster:
    return build_cluster(replace(resolve_cluster(name).spec, faults=faults))


def test_a_broken_gpu_is_gone_and_named() -> None:
    cluster = broken("gb200-nvl72@144", Fault(gpu="d1.n2.g3"))
    assert (len(cluster.gpus), cluster.spec.gpus) == (143, 144)
    assert "d1.n2.g3" not in cluster.graph
    assert cluster.graph.graph["broken_gpus"] == ("d1.n2.g3",)
    assert [gpu.id for gpu in cluster.gpus[72 + 10 : 72 + 12]] == ["d1.n2.g2", "d1.n3.g0"]
    validate_graph(cluster.graph)


def test_links_down_and_slow() -> None:
    cluster = broken(
        "hgx-h100@16",
        Fault(link=("d0.n0.g0", "d0.s0")),
        Fault(link=("d0.s1", "d0.n0.g0"), factor=0.5),
        Fault(link=("d0.n0.g3", "f.p0.l3"), factor=0.25),
    )
    graph = cluster.graph
    validate_graph(graph)
    assert not graph.has_edge("d0.n0.g0", "d0.s0")
    assert graph.graph["broken_links"] == (("d0.n0.g0", "d0.s0"),)
    slow = graph.edges["d0.n0.g0", "d0.s1"]
    assert (slow["health"], slow["link_bytes_per_s"], slow["bytes_per_s"]) == (0.5, 25e9, 62.5e9)
    assert graph.edges["d0.n0.g3", "f.p0.l3"]["bytes_per_s"] == 12.5e9
    assert graph.edges["d0.n0.g1", "d0.s1"]["health"] == 1.0
    # 18 links of 25 GB/s, five of them down and five at half
    assert cluster.scale_up_bytes_per_s(0) == 450e9 - 125e9 - 62.5e9
    assert cluster.scale_up_bytes_per_s(1) == 450e9
    assert stage_rates(cluster, range(8), ["bf16"]).up_bytes_per_s == 262.5e9
    assert stage_rates(cluster, range(8, 16), ["bf16"]).up_bytes_per_s == 450e9


def test_a_neighbour_gone_takes_its_links_with_it() -> None:
    cluster = broken("mi300x", Fault(gpu="d0.n0.g7"))
    assert {cluster.scale_up_bytes_per_s(gpu) for gpu in range(7)} == {448e9 - 64e9}
    assert cluster.scale_up_bytes_per_s(0) == cluster.graph.degree("d0.n0.g0", weight="bytes_per_s")


def test_gpus_that_faults_cut_off_are_infeasible_and_named() -> None:
    links = (*(("d0.n0.g2", f"d0.s{s}") for s in range(4)), ("d0.n0.g2", "f.p0.l2"))
    with pytest.raises(InfeasibleError, match=r"disconnect GPUs.*2 islands.*1 GPU \(d0\.n0\.g2\)"):
        broken("hgx-h100@16", *(Fault(link=link) for link in links))


def test_a_rate_nobody_published_is_said_when_scored() -> None:
    known = resolve_cluster("hgx-h100").spec.domains[0].gpu
    spec = resolve_cluster("rubin-ultra-nvl144").spec
    cluster = build_cluster(replace(spec, domains=(replace(spec.domains[0], gpu=known),)))
    with pytest.raises(MissingFigureError, match="nvlink7 is not published"):
        stage_rates(cluster, range(4), ["bf16"])


PODS = "domains: [{part: hgx-h100, count: 4}]\nfabric: {kind: rail, nic: 400 Gb/s, nodes_per_pod: 2}\n"


def written(folder: Path, rows: str, start: str = PODS) -> Cluster:
    (folder / "mine.yaml").write_text(f"{start}broken: {rows}\n")
    return resolve_cluster(str(folder / "mine.yaml"))


def test_broken_in_a_file(tmp_path: Path) -> None:
    rows = "[{gpu: d0.n0.g1}, {link: [d1.n0.g0, d1.s0], factor: 0.5}, {link: [d1.n0.g1, d1.s0]}]"
    cluster = written(tmp_path, rows)
    assert cluster.spec.faults == (
        Fault(gpu="d0.n0.g1"),
        Fault(link=("d1.n0.g0", "d1.s0"), factor=0.5),
        Fault(link=("d1.n0.g1", "d1.s0")),
    )
    assert len(cluster.gpus) == 31
    assert written(tmp_path, "[]").spec.faults == ()
    node = written(tmp_path, "[{node: d0.n3}]", "domains: [{part: gb200-nvl72}]\n")
    assert [fault.gpu for fault in node.spec.faults] == [f"d0.n3.g{g}" for g in range(4)]


@pytest.mark.parametrize(
    ("entry", "links"),
    [
        ("nic: d0.n0.g1", {("d0.n0.g1", "f.p0.l1")}),
        ("nic: d0.n0.g1.nic", {("d0.n0.g1", "f.p0.l1")}),
        ("leaf: f.p0.l1", {("f.p0.l1", end) for end in ("d0.n0.g1", "d1.n0.g1", "f.s0", "f.s1")}),
        ("switch: d1.s2", {("d1.s2", f"d1.n0.g{g}") for g in range(8)}),
        ("plane: 1", {("f.s1", f"f.p{p}.l{r}") for p in range(2) for r in range(8)}),
    ],
)
def test_a_part_is_named_and_its_links_are_broken(
    tmp_path: Path, entry: str, links: set[tuple[str, str]]
) -> None:
    spec = written(tmp_path, f"[{{{entry}, factor: 0.5}}, {{gpu: d3.n0.g0}}]").spec
    found = {frozenset(fault.link): fault.factor for fault in spec.faults if fault.link is not None}
    assert found == {frozenset(link): 0.5 for link in links}


def test_a_link_of_two_parts_has_what_the_worse_leaves(tmp_path: Path) -> None:
    spec = written(tmp_path, "[{leaf: f.p0.l1, factor: 0.5}, {nic: d0.n0.g1}]").spec
    assert sorted(fault.factor for fault in spec.faults) == [0.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("7", "must be a list"),
        ("[{gpu: d9.n0.g0}]", r"no GPU has the id 'd9\.n0\.g0'.*d0\.n0\.g0"),
        ("[{gpu: d0.n0.g0}, {gpu: d0.n0.g0}]", "duplicate GPU"),
        ("[{gpu: d0.n0.g1, link: [a, b]}]", "one of"),
        ("[{link: [d0.n0.g0]}]", "two ends"),
        ("[{link: [d0.n0.g0, d0.s9]}]", r"no node has the id 'd0\.s9'"),
        ("[{link: [d0.n0.g0, d0.s0], factor: 1.5}]", "at most 1"),
        ("[{link: [d0.n0.g0, d0.s0], factor: -1}]", "must be above 0"),
        ("[{switch: d0.s0}, {switch: d0.s0, factor: 0.5}]", "duplicate switch d0.s0"),
        ("[{switch: d0.s1, factor: 0}]", "must be above 0"),
        ("[{switch: d0.s1, leaf: f.p0.l0}]", "an entry names one part"),
        ("[{nic: d9.n0.g0}]", r"no NIC, and no GPU with a NIC, has the id 'd9\.n0\.g0'"),
        ("[{leaf: f.s0}]", r"no leaf has the id 'f\.s0'"),
        ("[{plane: 7}]", "no plane '7'; planes between domains: 0, 1"),
        ("[{node: d0.n18}]", "there is no d0.n18"),
        ("[{node: d0.n0, factor: 0.5}]", "can only be down entirely"),
        ("[{link: [d0.n0.g0, f.p0.l0], cabled_to: f.p9.l0}]", "no leaf has the id 'f.p9.l0'"),
        ("[{link: [d0.n0.g0, d0.s0], cabled_to: d1.s0}]", "no switch between domains has the id 'd1.s0'"),
        (
            "[{link: [d0.n0.g0, f.p0.l0], cabled_to: f.p0.l1, factor: 0.5}]",
            "a second entry with its new ends",
        ),
        ("[{gpu: d0.n0.g0, cabled_to: f.p0.l1}]", "only for whole links"),
        ("[{link: [f.p0.l0, f.s0], cabled_to: f.s1}]", "this would duplicate an existing link"),
    ],
)
def test_what_is_no_fault_is_refused(tmp_path: Path, rows: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        _ = written(tmp_path, rows).wiring
    assert "\n" not in str(caught.value)


def test_a_throttled_gpu_is_there_and_slow(tmp_path: Path) -> None:
    cluster = written(tmp_path, "[{gpu: d0.n0.g3, factor: 0.7}, {gpu: d1.n0.g0}]")
    assert len(cluster.gpus) == 31
    assert cluster.spec.slow_gpus == {"d0.n0.g3": 0.7}
    assert not cluster.spec.reshaped  # behind switches nobody sends through the one that is gone
    validate_graph(cluster.graph)
    assert "d0.n0.g3" in cluster.graph
    assert cluster.graph.graph["broken_gpus"] == ("d1.n0.g0",)
    whole, slow = stage_rates(cluster, [0], ["bf16"]), stage_rates(cluster, range(8), ["bf16"])
    assert slow.flop_per_s["bf16"] == pytest.approx(0.7 * whole.flop_per_s["bf16"])
    assert slow.hbm_bytes_per_s == pytest.approx(0.7 * whole.hbm_bytes_per_s)
    assert slow.up_bytes_per_s == whole.up_bytes_per_s
    assert stage_rates(cluster, range(8, 15), ["bf16"]).flop_per_s == whole.flop_per_s
