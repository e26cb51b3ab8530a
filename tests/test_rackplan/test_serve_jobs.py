"""Jobs of the local page: what they hand over, how they are told, cancelled and ended."""

from __future__ import annotations

import io
import json
import time

import pytest

from rackplan.serve.jobs import MOST_WAITING, Jobs
from rackplan.serve.worker import Desk, lose, place
from topology.base.errors import InfeasibleError, InputError

ASKED = {"model": {"name": "mixtral-8x7b"}, "clusters": [{"name": "hgx-h100"}], "tpot_ms": 30}


@pytest.fixture(scope="module")
def placed():
    out = io.StringIO()
    desk = Desk(out)
    desk.job = "job-1"
    made = place({"asked": ASKED, "order": {"seconds": 0}}, desk)
    return made, [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_plan_is_handed_over_with_figures_pictures_and_file(placed):
    made, told = placed
    data = made["done"]
    json.dumps(data, allow_nan=False)
    assert {one["name"]: "svg" in one for one in data["pictures"]} == {
        "experts": False,
        "step": True,
        "memory": True,
    }
    assert "<svg" in data["svg"]
    assert data["command"].startswith(
        "rackplan plan --model mixtral-8x7b --cluster hgx-h100 --context 4608 --tpot-ms 30"
    )
    figures = {row["what"]: row["value"] for row in data["figures"]}
    assert figures["step, ms"] <= 30
    assert figures["largest over mean GPU load"] >= 1
    assert json.loads(made["plan"])["model"] == "mixtral-8x7b"
    assert {one["job"] for one in told} == {"job-1"}
    assert "placing experts" in [one["progress"]["stage"] for one in told]


@pytest.mark.wide
def test_a_loss_stands_beside_the_plan_before(placed):
    found = lose({"plan": placed[0]["plan"], "lost": ["d0.n0.g1"]}, Desk(io.StringIO()))["done"]
    assert (found["lost"], found["lost_gpus"], found["gpus"]) == (["d0.n0.g1"], 1, 7)
    assert found["moves"] > 0
    assert found["before"] == placed[0]["done"]["figures"]
    assert found["command"] == "rackplan replan PLAN --lost d0.n0.g1"
    assert found["verdict"].startswith("Misses its limit: ")
    assert "limit:" not in placed[0]["done"]["verdict"]


def test_a_loss_of_all_says_why_not(placed):
    with pytest.raises((InfeasibleError, InputError)):
        lose({"plan": placed[0]["plan"], "lost": ["d0"]}, Desk(io.StringIO()))


def finished(job, jobs):
    for _ in range(400):
        if jobs.get(job.id).over:
            return job
        time.sleep(0.05)
    raise AssertionError(job)


def test_a_job_that_fails_says_why_and_the_next_one_runs():
    jobs = Jobs()
    try:
        bad = {"kind": "open", "plan": "{}"}
        first, second = jobs.add(bad), jobs.add(bad)
        assert (first.state, second.state) == ("running", "waiting")
        jobs.cancel(second)
        assert second.state == "cancelled"
        third = jobs.add(bad)
        assert "not a plan" in finished(first, jobs).message
        assert finished(third, jobs).state == "failed"
        process = jobs._process
        process.kill()
        process.wait()
        fourth = finished(jobs.add(bad), jobs)
        assert "not a plan" in fourth.message
    finally:
        jobs.close()
    assert jobs._process is None


def test_only_so_many_wait():
    jobs = Jobs()
    jobs._next = lambda: None
    for _ in range(MOST_WAITING + 1):
        jobs.add({"kind": "open", "plan": "{}"})
    with pytest.raises(InputError, match="wait already"):
        jobs.add({"kind": "open", "plan": "{}"})
