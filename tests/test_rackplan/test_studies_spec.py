"""What a study is: its points and their digests, ranges, and what is refused before anything is priced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackplan.studies.options import Range
from rackplan.studies.rows import columns_of
from rackplan.studies.spec import Point, Study, read_study, study_of
from topology.base.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL: dict[str, Any] = {"kind": "score", "fixed": {"model": "deepseek-v3", "cluster": "gb200-nvl72"}}


def made(base: Path | None = None, **more: Any) -> Study:
    return study_of({**SMALL, **more}, "study.yaml", base or Path())


def points(study: Study) -> list[Point]:
    return list(study.points())


@pytest.mark.parametrize(("name", "points"), [("grid", 36), ("sample", 900), ("domain-size", 224)])
def test_an_example_is_read(name: str, points: int) -> None:
    study = read_study(EXAMPLES / f"study-{name}.yaml")
    assert study.most == points
    assert columns_of(study)["digest"] == "string"
    if name == "domain-size":
        assert list(study.grid) == ["domain_gpus"]
        assert set(study.worth) == set(study.ranges)


def test_every_combination_of_a_grid_at_every_draw_is_a_point() -> None:
    study = made(
        grid={"ep": [24, 72], "tp": [1, 2]}, sample={"points": 3, "seed": 7, "context": [1024, 4096]}
    )
    found = points(study)
    assert [point.number for point in found] == list(range(12))
    assert len({point.digest for point in found}) == 12
    drawn = [point.options["context"] for point in found]
    assert drawn[:3] == drawn[3:6] == drawn[9:]
    assert study.columns == ["ep", "tp", "context", "model", "cluster"]


def test_values_to_choose_from_are_no_range_and_prices_are_one() -> None:
    sample = {"points": 40, "domain_gpus": {"values": [36, 72]}, "price.gb200": [2.0, 6.0]}
    found = points(made(sample=sample))
    assert {point.options["domain_gpus"] for point in found} == {36, 72}
    assert all(2 <= float(str(point.options["price.gb200"])) <= 6 for point in found)


def test_a_digest_follows_the_content_of_a_file_and_not_its_place(tmp_path: Path) -> None:
    text = "name: own\ndomains: [{part: gb200-nvl72}]\n"
    digests = []
    for folder, content in (("a", text), ("b", text), ("c", text + "\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.yaml").write_text(content, encoding="utf-8")
        fixed = {"model": "deepseek-v3", "cluster": "own.yaml"}
        study = made(tmp_path / folder, fixed=fixed)
        digests.append(points(study)[0].digest)
    assert digests[0] == digests[1] != digests[2]


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no reason to fail
@given(
    low=st.floats(1e-3, 1e6),
    times=st.floats(1.01, 1e3),
    part=st.floats(0, 1, exclude_max=True),
    log=st.booleans(),
)
def test_values_lie_in_their_range(low: float, times: float, part: float, log: bool) -> None:
    found = Range(low, low * times, "", whole=False, log=log).at(part)
    assert isinstance(found, float)
    assert low <= found <= low * times


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"grid": {"contxt": [1]}}, "no option `contxt`; did you mean context?"),
        ({"grid": {"set.gpu.hbm_bytes": [10**400]}}, "expected a quantity"),
        ({"grid": {"batch": list(range(1, 1002)), "context": list(range(1, 1001))}}, "1,001,000 points"),
        ({"grid": {"set.gpu": ["2x"]}}, "expected set.PART.FIGURE"),
        ({"grid": {"loads": ["uniform"]}}, "`loads`; it belongs to kind plan"),
        ({"grid": {"ep": [8]}, "optimize": {"search": {"tp": [1, 2]}}}, "use `optimize: curve`"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=r"study\.yaml") as caught:
        made(**more)
    assert said in str(caught.value)
