"""Rows survive kills, and points whose workers die are priced again or given up with a reason."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rackplan.studies import rows as store
from rackplan.studies.engines import price_here
from rackplan.studies.result import Progress
from rackplan.studies.rows import Row, Store, columns_of, opened, read_rows
from rackplan.studies.run import Pricer
from rackplan.studies.spec import Point, study_of
from rackplan.studies.work import Job
from topology.base.errors import InputError

pytest.importorskip("pyarrow", reason="studies write Parquet")
pytest.importorskip("joblib", reason="studies run on joblib")
CONTENT: dict[str, Any] = {
    "kind": "score",
    "fixed": {"model": "m", "cluster": "c"},
    "grid": {"batch": list(range(1, 41))},
    "limit_s": 5,
}
STUDY = study_of(CONTENT, "study.yaml", Path())
COLUMNS = columns_of(STUDY)


def points() -> list[Point]:
    return list(STUDY.points())


def row_of(point: Point) -> Row:
    figures = {"status": "ok", "step_s": point.options["batch"], "seconds": 0.01}
    return {**figures, "digest": point.digest, "point": point.number}


class FakeEngine:
    """Prices in batches of four; ``dies`` tells of the batch sizes of a task whether its worker dies."""

    def __init__(self, dies: Callable[[Sequence[int]], bool] = lambda _: False) -> None:
        self.dies = dies
        self.tasks: list[list[int]] = []

    def __call__(self, job: Job, points: Sequence[Point]) -> Iterator[Row | None]:  # noqa: ARG002
        for first in range(0, len(points), 4):
            some = points[first : first + 4]
            self.tasks.append([int(str(point.options["batch"])) for point in some])
            if self.dies(self.tasks[-1]):
                yield None
            else:
                yield from map(row_of, some)


def priced(folder: Path, engine: Any) -> tuple[Progress, list[Row]]:
    with opened(STUDY, folder) as rows:
        progress = Progress(40, len(rows.rows))
        Pricer(engine, rows, STUDY, progress).price(points())
        rows.compact()
    return progress, read_rows(folder, COLUMNS)


def test_all_points_are_priced_once_and_any_reader_reads_them(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    duckdb = pytest.importorskip("duckdb")
    progress, rows = priced(tmp_path, FakeEngine())
    assert [row["batch"] for row in rows] == list(range(1, 41))
    assert (progress.done, progress.here) == (40, 40)
    assert pandas.read_parquet(tmp_path / "results")["step_s"].sum() == 820
    with duckdb.connect() as database:
        total = database.execute("SELECT sum(step_s) FROM read_parquet(?)", [f"{tmp_path}/results/*.parquet"])
        assert total.fetchone() == (820.0,)
    again = FakeEngine()
    priced(tmp_path, again)
    assert again.tasks == []


def test_points_of_a_lost_worker_are_priced_again(tmp_path: Path) -> None:
    deaths = iter([False, True, True])
    progress, rows = priced(tmp_path, FakeEngine(lambda _: next(deaths, False)))
    assert [row["status"] for row in rows] == ["ok"] * 40
    assert progress.replaced == 2


@pytest.mark.parametrize(("step_s", "status"), [(0, "failed"), (100, "timeout")])
def test_a_point_that_kills_its_workers_is_given_up_and_no_other(
    step_s: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count(0, step_s)
    monkeypatch.setattr("rackplan.studies.run.time.monotonic", lambda: next(clock))
    progress, rows = priced(tmp_path, FakeEngine(lambda batches: 17 in batches))
    assert [(row["batch"], row["status"]) for row in rows if row["status"] != "ok"] == [(17, status)]
    assert progress.replaced == 3


def deadly(_: Job, points: Sequence[Point]) -> list[Row]:
    """Price points, but for one that kills its worker."""
    if any(point.options["batch"] == 17 for point in points):
        os.kill(os.getpid(), signal.SIGKILL)
    return [row_of(point) for point in points]


@pytest.mark.wide
def test_processes_that_are_killed_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackplan.studies.engines.run_points", deadly)
    progress, rows = priced(tmp_path, partial(price_here, 2))
    assert {row["batch"]: row["status"] for row in rows if row["status"] != "ok"} == {17: "failed"}
    assert len(rows) == 40
    assert progress.replaced >= 3


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    with (
        opened(STUDY, tmp_path),
        pytest.raises(InputError, match="another rackplan process is writing to it"),
        opened(STUDY, tmp_path),
    ):
        pass


def test_many_files_become_one_and_a_row_that_is_in_two_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_PARTS", 16)
    rows = Store(tmp_path, COLUMNS)
    for point in reversed(points()):
        rows.add(row_of(point))
        rows.flush()
    results = tmp_path / "results"
    assert 1 < len(list(results.iterdir())) <= 16
    whole = results / store.WHOLE_TABLE
    (results / "part-00099.parquet").write_bytes(whole.read_bytes())  # killed before it was removed
    Store(tmp_path, COLUMNS).compact()
    assert [row["step_s"] for row in read_rows(tmp_path, COLUMNS)] == list(range(1, 41))
    assert list(results.iterdir()) == [whole]


def test_a_row_is_in_one_file_if_ctrl_c_comes_when_it_has_just_been_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, write = Store(tmp_path, COLUMNS), store.write_folder
    rows.add(row_of(points()[0]))
    with monkeypatch.context() as patched:
        patched.setattr(
            store, "write_folder", lambda *given: [write(*given), signal.raise_signal(signal.SIGINT)]
        )
        with pytest.raises(KeyboardInterrupt):
            rows.flush()
    rows.flush()
    assert len(list((tmp_path / "results").iterdir())) == len(read_rows(tmp_path, COLUMNS)) == 1


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Store(tmp_path, COLUMNS)
    rows.add(row_of(points()[0]))
    rows.flush()
    rows.add(row_of(points()[1]))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        rows.compact()
    assert len(Store(tmp_path, COLUMNS).rows) == 1


def test_a_file_that_is_no_table_of_the_study_is_refused(tmp_path: Path) -> None:
    rows = Store(tmp_path, {"point": "int64", "digest": "string"})
    rows.add(row_of(points()[0]))
    rows.flush()
    for content in (None, b"PAR1"):
        if content:
            (tmp_path / "results" / store.WHOLE_TABLE).write_bytes(content)
        with pytest.raises(InputError, match=r"part-00000\.parquet: not a valid results file"):
            Store(tmp_path, COLUMNS)
