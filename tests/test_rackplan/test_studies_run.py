"""Rows survive kills, and points whose workers die are priced again or given up with a reason."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rackplan.studies.columns import checked_row
from rackplan.studies.engines import MachineLostError, WorkerLostError
from rackplan.studies.progress import Progress
from rackplan.studies.run import Runner
from rackplan.studies.spec import Files, Point, study_of
from rackplan.studies.store import Store
from rackplan.studies.work import Task
from topology.base.errors import InputError

pytest.importorskip("pyarrow", reason="studies write Parquet")
STUDY = study_of(
    {
        "kind": "score",
        "fixed": {"model": "m", "cluster": "c"},
        "grid": {"batch": list(range(1, 41))},
        "limit_s": 5,
    },
    "study.yaml",
    Path(),
)


def points() -> list[Point]:
    return list(STUDY.points(Files(Path())))


def row_of(task: Task) -> dict[str, Any]:
    number, digest, options = task
    return {
        "point": number,
        "digest": digest,
        "status": "ok",
        "step_s": options["batch"],
        "seconds": 0.01,
        "cpu_s": 0.0,
        "host": "here",
        "finished": "2026-01-01T00:00:00+00:00",
    }


def opened(folder: Path) -> Store:
    from rackplan.studies.columns import columns_of
    from rackplan.studies.store import Store

    return Store(folder, columns_of(STUDY))


class FakeEngine:
    """Prices at once; ``fate`` says of the batches of a chunk whether its worker dies."""

    slots = 2
    worked_s: float | None = 0.1

    def __init__(self, fate: Callable[[Sequence[int]], Exception | None] = lambda _: None) -> None:
        self.fate = fate
        self.tasks: list[Sequence[Task]] = []

    def submit(self, tasks: Sequence[Task]) -> int:
        self.tasks.append(tasks)
        return len(self.tasks) - 1

    def wait(self, handles: Iterable[int], timeout_s: float) -> list[int]:  # noqa: ARG002 - as engines have it
        return sorted(handles)[:1]

    def rows(self, handle: int) -> list[dict[str, Any]]:
        tasks = self.tasks[handle]
        lost = self.fate([int(str(task[2]["batch"])) for task in tasks])
        if lost is not None:
            raise lost
        return [row_of(task) for task in tasks]

    def began(self, handle: int) -> float | None:  # noqa: ARG002 - as engines have it
        return None if self.worked_s is None else time.monotonic() - self.worked_s

    def end(self, handle: int) -> None:
        pass

    def close(self) -> None:
        pass


def run(
    folder: Path, engine: FakeEngine, say: Callable[[str], None] = lambda _: None
) -> tuple[Progress, list[dict[str, Any]]]:
    from rackplan.studies.columns import columns_of
    from rackplan.studies.store import read_rows

    store, progress = opened(folder), Progress(40)
    columns = columns_of(STUDY)
    runner = Runner(engine, store, kind="score", columns=columns, limit_s=5, progress=progress, say=say)
    runner.run(iter(points()))
    store.close()
    return progress, read_rows(folder)


def test_all_points_are_priced_once_and_read_by_everybody(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    duckdb = pytest.importorskip("duckdb")
    engine = FakeEngine()
    progress, rows = run(tmp_path, engine)
    assert [row["batch"] for row in rows] == list(range(1, 41))
    assert (progress.done, progress.here) == (40, 40)
    assert max(map(len, engine.tasks)) > 1
    frame = pandas.read_parquet(tmp_path / "results")
    assert frame["step_s"].sum() == 820
    with duckdb.connect() as database:
        asked = database.execute("SELECT sum(step_s) FROM read_parquet(?)", [f"{tmp_path}/results/*.parquet"])
        assert asked.fetchone() == (820.0,)
    again = FakeEngine()
    run(tmp_path, again)
    assert again.tasks == []


def test_points_of_a_lost_worker_are_priced_again(tmp_path: Path) -> None:
    falls = iter([None, None, WorkerLostError("gone"), WorkerLostError("gone"), MachineLostError("gone")])
    progress, rows = run(tmp_path, FakeEngine(lambda _: next(falls, None)))
    assert [row["status"] for row in rows] == ["ok"] * 40
    assert progress.replaced == 3


def test_a_point_that_kills_its_workers_is_given_up_and_no_other(tmp_path: Path) -> None:
    def fate(batches: Sequence[int]) -> Exception | None:
        return WorkerLostError("signal 9") if 17 in batches else None

    engine = FakeEngine(fate)
    _, rows = run(tmp_path, engine)
    assert [row["batch"] for row in rows if row["status"] != "ok"] == [17]
    assert "its worker died" in rows[16]["reason"]
    assert len(rows) == 40


@pytest.mark.parametrize(("worked_s", "status"), [(6.0, "timeout"), (0.1, "failed"), (None, "failed")])
def test_a_point_whose_worker_ends_after_its_limit_took_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worked_s: float | None, status: str
) -> None:
    monkeypatch.setattr("rackplan.studies.run.hard_limit_s", lambda limit_s: -limit_s)  # it waited for long

    def fate(batches: Sequence[int]) -> Exception | None:
        return WorkerLostError("ended") if 3 in batches else None

    monkeypatch.setattr(FakeEngine, "worked_s", worked_s)
    _, rows = run(tmp_path, FakeEngine(fate))
    assert [(row["batch"], row["status"]) for row in rows if row["status"] != "ok"] == [(3, status)]


def test_a_study_that_was_stopped_blames_no_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackplan.studies.run._STOPPED_S", -1.0)  # between any two turns
    seen: set[object] = set()

    class Stopped(FakeEngine):
        def rows(self, handle: int) -> list[dict[str, Any]]:
            found = super().rows(handle)
            new = [row for row in found if row["digest"] not in seen]
            seen.update(row["digest"] for row in new)
            return [row | {"status": "timeout"} if row in new else row for row in found]

    _, rows = run(tmp_path, Stopped())
    assert [row["status"] for row in rows] == ["ok"] * 40


def test_a_worker_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackplan.studies.run._FROZEN_S", -100.0)
    monkeypatch.setattr("rackplan.studies.run.hard_limit_s", lambda limit_s: -limit_s)
    ended: list[int] = []

    class Frozen(FakeEngine):
        worked_s = 6.0

        def wait(self, handles: Iterable[int], timeout_s: float) -> list[int]:
            return super().wait([one for one in handles if one or ended], timeout_s)

        def end(self, handle: int) -> None:
            ended.append(handle)

        def rows(self, handle: int) -> list[dict[str, Any]]:
            if not handle:
                raise WorkerLostError("ended")
            return super().rows(handle)

    _, rows = run(tmp_path, Frozen())
    assert ended[0] == 0
    assert [row["batch"] for row in rows if row["status"] != "ok"] == [1]


def test_a_cluster_that_is_gone_ends_the_study_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackplan.studies.run.MOST_MACHINES", 5)
    falls = iter([None, None])
    with pytest.raises(InputError, match="the same command goes on"):
        run(tmp_path, FakeEngine(lambda _: next(falls, MachineLostError("gone"))))
    assert len(opened(tmp_path).digests) >= 2


@pytest.mark.parametrize("cell", [[0], {"a": 1}, math.nan])
def test_a_row_that_no_study_wrote_is_none(cell: object) -> None:
    point = points()[0]
    row = row_of((point.number, point.digest, dict(point.options)))
    assert checked_row(row)["digest"] == row["digest"]
    with pytest.raises(ValueError, match="its cluster is"):
        checked_row(row | {"cluster": cell})


def test_no_thread_holds_a_file_of_python_when_python_ends(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add([row_of((point.number, point.digest, dict(point.options))) for point in points()])
    store.compact()
    code = (
        "import sys; from pathlib import Path; from rackplan.studies.store import read_rows; "
        "print(len(read_rows(Path(sys.argv[1]))), 'pyarrow.dataset' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, timeout=60
    )
    assert ended.stdout.split() == [b"40", b"False"]  # a dataset's threads outlive its reading


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    tasks: list[Task] = [(point.number, point.digest, dict(point.options)) for point in points()]
    store.add([row_of(task) for task in tasks[:20]])
    store.sync(now=True)
    store.add([row_of(tasks[20])])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(InputError, match="No space left on device"):
        store.compact()
    assert len(opened(tmp_path).digests) == 20


def test_many_files_become_one_and_a_row_that_is_in_two_is_taken_once(tmp_path: Path) -> None:
    from rackplan.studies.store import PART, read_rows

    store = opened(tmp_path)
    tasks: list[Task] = [(point.number, point.digest, dict(point.options)) for point in points()]
    for task in reversed(tasks):
        store.add([row_of(task)])
        store.sync(now=True)
    results = tmp_path / "results"
    assert 1 < len(list(results.iterdir())) < 33
    (results / "part-00099.parquet").write_bytes(
        (results / PART).read_bytes()  # killed before it was removed
    )
    again = opened(tmp_path)
    again.close()
    assert [row["step_s"] for row in read_rows(tmp_path)] == list(range(1, 41))
    assert [path.name for path in results.iterdir()] == [PART]
