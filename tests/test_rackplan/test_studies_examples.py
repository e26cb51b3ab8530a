"""The studies among the examples are read, and their points are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackplan.studies.columns import columns_of
from rackplan.studies.spec import Files, read_study

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("name", "points"), [("grid", 36), ("sample", 900), ("domain-size", 1)])
def test_an_example_is_read(name: str, points: int) -> None:
    study = read_study(EXAMPLES / f"study-{name}.yaml")
    assert len(list(study.points(Files(study.base)))) == points
    assert columns_of(study)["digest"] == "string"
    if name == "domain-size":
        assert study.search is not None
        assert study.search.curve is not None
        assert study.search.curve[0] == "domain_gpus"
        assert set(study.search.worth) == set(study.search.ranges)
