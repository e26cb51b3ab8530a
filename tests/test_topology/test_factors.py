"""What two clusters differ in, and those between them: each factor is moved alone, and all of them make the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import Evidence, InputError, resolve_cluster
from topology.build import build_cluster
from topology.factors import DOMAIN, FACTORS, SCALE_OUT, between, differences
from topology.spec import ClusterSpec, Fault
from topology.structures.raw import RawTopology

PAIRS = (
    ("lecture-8@72", "lecture-72"),
    ("hgx-h200@72", "gb200-nvl72"),
    ("mi300x@16", "hgx-h100@16"),
    ("tpu-v5p", "gb200-nvl72@64"),
    ("cm384@384", "vr-nvl72@384"),
    ("hgx-h20@16", "hgx-h800@16"),
)


def spec(name: str) -> ClusterSpec:
    return resolve_cluster(name).spec


def names(first: ClusterSpec, second: ClusterSpec) -> set[str]:
    return {factor.name for factor in differences(first, second)}


@pytest.mark.parametrize("pair", PAIRS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_what_is_taken_is_all_that_moves(pair: tuple[str, str], data: st.DataObject) -> None:
    first, second = map(spec, pair)
    differ = names(first, second)
    taken = data.draw(st.sets(st.sampled_from(sorted(differ))))
    middle = between(first, second, taken)
    assert names(first, middle) == seen(taken, first, middle)
    assert names(middle, second) == seen(differ - taken, middle, second)
    assert middle.gpus == first.gpus
    assert len(build_cluster(middle).gpus) == first.gpus
    # domains that are alike stay one object, by which costs tell them
    own = second if DOMAIN in taken else first
    assert len(set(map(id, middle.domains))) == len(set(map(id, own.domains)))


def seen(factors: set[str], *clusters: ClusterSpec) -> set[str]:
    """Those that matter to clusters: between domains nothing does where each has one."""
    return factors - {SCALE_OUT} if all(len(one.domains) == 1 for one in clusters) else factors


def test_the_lecture_moves_the_domain_alone() -> None:
    found = differences(spec("lecture-8@72"), spec("lecture-72"))
    assert [(one.name, one.before, one.after) for one in found] == [
        (DOMAIN, "9 domains of 8", "1 domain of 72")
    ]


def test_rates_move_and_cables_stay() -> None:
    first, second = spec("mi300x@16"), spec("hgx-h100@16")
    middle = between(first, second, {"scale-up rate"})
    domain = middle.domains[0]
    assert (domain.structure, domain.links_per_gpu) == ("mesh", 7)
    assert domain.scale_up_bytes_per_s == pytest.approx(450e9)
    assert domain.fabric.name == "nvlink4"


def test_figures_that_are_supposed_say_so() -> None:
    middle = between(spec("hgx-h200@72"), spec("gb200-nvl72"), {"HBM bandwidth"})
    gpu = middle.domains[0].gpu
    moved, own = gpu.figures["hbm_bytes_per_s"], gpu.figures["hbm_bytes"]
    assert (moved.value, moved.kind) == (8e12, Evidence.USER)
    assert "supposed" in moved.source
    assert own.kind != Evidence.USER
    assert {domain.status for domain in middle.domains} == {"hypothetical"}
    assert middle.name == "hgx-h200@72 with HBM bandwidth of gb200-nvl72"


def test_formats_that_one_chip_lacks_come_with_its_peaks() -> None:
    first, second = spec("hgx-h200@72"), spec("gb200-nvl72")
    assert between(first, second, {"flop/s"}).domains[0].gpu.multiplies("fp4")
    assert not between(first, second, set(FACTORS) - {"flop/s"}).domains[0].gpu.multiplies("fp4")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"faults": (Fault(gpu="d0.n0.g0"),)}, "parts of it are broken"),
        ({"raw": RawTopology(())}, "a graph written out"),
        ({"domains": (*spec("hgx-h200").domains, *spec("hgx-h100").domains)}, "several kinds"),
    ],
)
def test_what_cannot_be_moved_alone_is_refused(change: dict[str, object], words: str) -> None:
    whole = spec("hgx-h200@16")
    with pytest.raises(InputError, match=words):
        differences(replace(whole, **change), whole)
    with pytest.raises(InputError, match=words):
        between(whole, replace(whole, **change), {DOMAIN})
