"""What a gain is made of: factors that multiply to it, each of what changed alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.serving.lengths import Lengths
from cost.serving.serving import Serving
from placement.analysis.gains import STEPS, Gain, split_gains
from topology import resolve_cluster
from topology.build import build_cluster
from topology.changes.overrides import overrides

MIXTRAL = resolve_model("mixtral-8x7b")
SPEEDS = (20.0, 60.0)


def deployed(name: str, *settings: str) -> Deployment:
    (cluster,) = overrides([resolve_cluster(name)], settings)
    return Deployment(cluster, MIXTRAL, Workload())


def priced(deployment: Deployment) -> list[float | None]:
    found = Serving.of(deployment, Lengths.of(2048, 256), ttft_s=2.0, speeds=SPEEDS)
    bests = [found.best(1 / speed) for speed in SPEEDS]
    return [None if best is None else best.output_tok_s_per_gpu for best in bests]


def gains(before: Deployment, after: Deployment) -> list[Gain]:
    return split_gains(before, after, SPEEDS, (priced(before), priced(after)), priced)


def test_the_factors_multiply_to_the_gain() -> None:
    for gain in gains(deployed("hgx-h100"), deployed("gb200-nvl72@8")):
        assert tuple(gain.factors) == STEPS
        assert gain.gain is not None
        product = math.prod(factor for factor in gain.factors.values() if factor is not None)
        assert product == pytest.approx(gain.gain, rel=1e-9)
        assert gain.gain > 1


def test_equal_clusters_gain_nothing_and_nothing_is_priced() -> None:
    one, other = deployed("hgx-h100"), deployed("hgx-h100")
    for gain in split_gains(one, other, SPEEDS, ((5.0, 2.0), (5.0, 2.0)), lambda _: pytest.fail("priced")):
        assert gain.gain == 1
        assert dict(gain.factors) == dict.fromkeys(STEPS, 1.0)


@pytest.mark.parametrize(
    ("setting", "step"),
    [
        ("gpu.hbm_bytes_per_s=2x", "HBM bandwidth"),
        ("gpu.flop_per_s=2x", "flop/s"),
        ("scale-up.link_bytes_per_s=0.1x", "fabric"),
    ],
)
def test_what_changes_alone_shows_up_alone(setting: str, step: str) -> None:
    found = gains(deployed("hgx-h100"), deployed("hgx-h100", setting))
    for gain in found:
        assert {name for name, factor in gain.factors.items() if factor != 1} <= {step}
    assert any(gain.factors[step] not in (1, None) for gain in found)


def test_a_machine_that_reaches_nothing_leaves_its_factor_to_the_next() -> None:
    after = deployed("gb200-nvl72@8")
    rates = iter([2.0, None, 3.0, 4.0, 4.0, 4.0])

    def price(_: Deployment) -> list[float | None]:
        return [next(rates)]

    before = deployed("hgx-h100", "gpu.fp8_flop_per_s=1.5x")
    (gain,) = split_gains(before, after, [20.0], ([1.0], [8.0]), price)
    assert list(gain.factors.values()) == [2.0, None, 1.5, pytest.approx(4 / 3), 1.0, 1.0, 2.0]


def test_no_split_where_one_does_not_reach_the_speed_or_has_several_chips() -> None:
    before, after = deployed("hgx-h100"), deployed("hgx-h200")
    (gain,) = split_gains(before, after, [20.0], ([None], [1.0]), lambda _: pytest.fail("priced"))
    assert (gain.gain, gain.factors) == (None, {})
    assert "hgx-h100 does not reach" in gain.reason
    domains = (*after.cluster.spec.domains, *before.cluster.spec.domains)
    spec = replace(resolve_cluster("hgx-h200@16").spec, domains=domains)
    mixed = replace(after, cluster=build_cluster(spec))
    (gain,) = split_gains(before, mixed, [20.0], ([1.0], [2.0]), lambda _: pytest.fail("priced"))
    assert (gain.gain, gain.factors) == (2.0, {})
    assert "several kinds" in gain.reason
