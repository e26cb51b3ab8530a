"""Fractions of peak: within (0, 1], each with a source, and the pure roofline without any loss."""

import pytest

from cost.efficiency import PEAK, PUBLISHED
from topology.figures import Evidence

FRACTIONS = ("hbm", "attention", "gemm", "experts", "scale_up", "scale_out")
DELAYS = ("dispatch_up_s", "combine_up_s", "dispatch_out_s", "combine_out_s")


def test_every_coefficient_is_a_fraction_or_a_delay():
    assert set(PUBLISHED.figures()) == {*FRACTIONS, *DELAYS}


def test_peak_loses_nothing():
    assert [PEAK.figures()[name].value for name in FRACTIONS] == [1.0] * len(FRACTIONS)
    assert [PEAK.figures()[name].value for name in DELAYS] == [0.0] * len(DELAYS)


@pytest.mark.parametrize("name", FRACTIONS)
def test_published_fractions_lose_something_and_name_a_source(name):
    figure = PUBLISHED.figures()[name]
    assert 0 < figure.value < 1
    assert figure.unit == "1"
    assert figure.kind is Evidence.ASSUMED
    assert figure.source


@pytest.mark.parametrize("name", DELAYS)
def test_published_delays_are_microseconds(name):
    figure = PUBLISHED.figures()[name]
    assert 1e-6 < figure.value < 1e-4
    assert figure.unit == "s"
    assert figure.text == f"{figure.value * 1e6:g} us"
    assert figure.source


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("attention", 0.43, 0.57),  # MLA decode in BF16, Hopper and Blackwell
        ("gemm", 0.48, 0.58),  # FP8 block scales
        ("experts", 0.22, 0.35),  # grouped GEMM in FP8 at large batch
        ("scale_up", 0.70, 0.75),  # NVL72 all-to-all
        ("scale_out", 0.80, 0.92),  # InfiniBand all-to-all
    ],
)
def test_published_fractions_lie_in_the_ranges_they_name(name, low, high):
    assert low <= PUBLISHED.figures()[name].value <= high
