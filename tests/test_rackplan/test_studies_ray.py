"""A study on a real Ray cluster of two nodes on loopback, one of them killed half-way: the rows of the local run."""

from __future__ import annotations

import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from rackplan.requests import StudyRequest, make
from rackplan.studies.rows import WHEN
from rackplan.studies.run import run_study
from topology.base.errors import InputError

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of its processes and sockets
]
SOON = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}
"""A node that is gone is found so in two seconds, and not in half a minute."""
CLUSTER = "name: own\ndomains: [{part: hgx-h200, count: 2}]\n"
STUDY = """\
kind: score
limit_s: 60
fixed: {model: qwen3-235b-a22b, cluster: own.yaml}
grid: {context: [1024, 4096, 16384], ep: [8, 16, 17]}
sample: {points: 100, batch: [1.0, 100.0]}
"""


@pytest.fixture(autouse=True)
def needed() -> None:
    pytest.importorskip("pyarrow", reason="studies write Parquet")
    pytest.importorskip("ray", reason="a Ray cluster is begun")


def asked(folder: Path, out: str, **more: Any) -> StudyRequest:
    (folder / "own.yaml").write_text(CLUSTER, encoding="utf-8")
    (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
    return make(StudyRequest, folder / "study.yaml", folder / out, **more)


def test_a_node_with_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackplan.studies.run.version", lambda: "0.1.0+0123456789abcdef")
    with pytest.raises(
        InputError, match=r"a node of the cluster .* has rackplan .* but the study runs 0\.1\.0.01234"
    ):
        run_study(asked(tmp_path, "ray", engine="ray", workers=1))


def test_rows_are_those_of_the_local_run_though_a_node_dies(tmp_path: Path) -> None:
    import pyarrow.parquet as pq
    from ray.cluster_utils import Cluster

    local = run_study(asked(tmp_path, "local", workers=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": SOON}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        second = cluster.add_node(num_cpus=1)
        killers: list[threading.Thread] = []
        handlers, own = set[Any](), signal.getsignal(signal.SIGTERM)

        def say(words: str) -> None:
            handlers.add(signal.getsignal(signal.SIGTERM))
            if not killers and "of 900 points" in words:
                killer = threading.Thread(
                    target=cluster.remove_node, args=(second,), kwargs={"allow_graceful": False}
                )
                killers.append(killer)
                killer.start()

        try:
            remote = run_study(asked(tmp_path, "ray", engine="ray", address=cluster.address), say=say)
        finally:
            for killer in killers:
                killer.join()
            cluster.shutdown()
    assert killers
    assert handlers == {own}  # Ray's would end it with a trace
    assert len(remote.rows) == 900
    tables = [pq.read_table(result.folder / "results").drop_columns(WHEN) for result in (remote, local)]
    assert tables[0].equals(tables[1])
