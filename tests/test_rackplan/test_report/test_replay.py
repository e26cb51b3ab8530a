"""The document of a replay as it reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import rackplan
from goldens import require_golden
from rackplan.report.page import page
from rackplan.report.replay import replay_doc


def test_policies_over_windows() -> None:
    rng = np.random.default_rng(3)
    windows = rng.poisson(1000 * rng.lognormal(0, 0.5, (5, 32, 8)))
    found = rackplan.replay(model="mixtral-8x7b", cluster="hgx-h100", loads=windows)
    runs = tuple(replace(run, cpu_s=0.25) for run in found.result.runs)  # another time another figure
    doc = replay_doc(replace(found, result=replace(found.result, runs=runs)))
    require_golden("replay", doc)
    assert doc.data["best"]["policy"] in {row["policy"] for row in doc.data["policies"]}
    written = page(doc)
    for title in ("Balance by window", "Copies moved", "Expert map", "HBM of the fullest GPU"):
        assert f">{title}<" in written
