"""Coefficients by name, and the pure roofline without any loss."""

import pytest

from cost.machine import COEFFICIENTS, PEAK, Efficiency
from topology.figures import Evidence, Figure

FRACTIONS = ("gemm.", "experts.", "attention.", "hbm.", "links.")


def test_peak_has_every_coefficient_and_loses_nothing():
    assert list(PEAK.figures()) == list(COEFFICIENTS)
    for name in COEFFICIENTS:
        one = name.startswith(
            (*FRACTIONS, "accept.")
        )  # no token of a draft is accepted unless somebody says so
        assert PEAK[name] == (1.0 if one else 0.0), name
        assert PEAK.figures()[name].kind is Evidence.DATASHEET
    assert PEAK.ideal


def test_units_are_fractions_and_seconds():
    for name, figure in PEAK.figures().items():
        assert figure.unit == ("s" if name.startswith("delay.") else "1"), name


def test_a_coefficient_is_found_by_its_name():
    made = Efficiency({"hbm.cache": Figure(0.7, "1", Evidence.MEASURED, "here")}, "a chip", "an engine")
    assert made["hbm.cache"] == 0.7
    assert made.figures()["hbm.cache"].source == "here"
    assert not made.ideal
    with pytest.raises(KeyError):
        made["hbm.weights"]
