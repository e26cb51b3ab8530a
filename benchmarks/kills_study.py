"""Studies for benchmarks/kills.py: priced in the process itself, the same rows each time, some files of few rows.

What is looked at is the journal, the files of results and what becomes of them, not prices.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

GRID = """\
kind: score
fixed: {model: deepseek-v3, cluster: gb200-nvl72}
grid: {context: [1024, 4096], batch: [%s]}
"""
TUNED = """\
kind: sweep
fixed: {model: deepseek-v3, cluster: gb200-nvl72}
optimize:
  goal: usd_per_million_tokens
  trials: 10
  search: {set.gpu.hbm_bytes_per_s: {low: 0.5x, high: 4x, scale: log}}
"""
FILES = {
    "study.yaml": GRID % "1, 2, 3, 4, 5, 6, 7",
    "before.yaml": GRID % "2, 4, 6",
    "tune.yaml": TUNED,
}
_ROWS_OF_A_FILE = 3
_WHEN = {"seconds": 0.1, "cpu_s": 0.1, "host": "here", "finished": "2026-01-01T00:00:00.000+00:00"}
_OPTUNA = ("optuna.journal", "optuna.journal.lock")


class Here:
    """An engine in the process that asks: two points at once, each as dear as its number says."""

    slots = 2

    def submit(self, tasks: Sequence[tuple[int, str, Mapping[str, object]]]) -> object:
        """Begin with some points."""
        return tuple((number, digest) for number, digest, _ in tasks)

    def wait(self, handles: Iterable[Any], timeout_s: float) -> list[Any]:  # noqa: ARG002 - as engines have it
        """Return those that are done: all."""
        return list(handles)

    def rows(self, handle: Any) -> list[dict[str, Any]]:
        """Return rows."""
        figures = {"status": "ok", "reason": None, "tok_s_per_gpu": 1.0}
        return [
            {**figures, **_WHEN, "point": number, "digest": digest, "usd_per_million_tokens": 1.0 + number}
            for number, digest in handle
        ]

    def began(self, handle: object) -> float:  # noqa: ARG002 - as engines have it
        """Return when it began: at once."""
        return 0.0

    def end(self, handle: object) -> None:
        """Nothing hangs."""

    def close(self) -> None:
        """Nothing runs."""


def prepare() -> None:
    """Let studies of this process be priced here, and written out after each chunk."""
    import rackplan.studies.folder
    import rackplan.studies.run
    import rackplan.studies.store
    import rackplan.studies.tune

    def engine(*_: object, **__: object) -> Any:
        return Here()

    for module in (rackplan.studies.folder, rackplan.studies.tune):
        module.make_engine = engine
    rackplan.studies.run.SYNC_S = 0.0
    rackplan.studies.store.PART_ROWS = _ROWS_OF_A_FILE


def comparable(name: str, data: bytes) -> bytes:
    """Return what of a file two runs have in common: the rows of Parquet, nothing of Optuna's journal."""
    if name.endswith(_OPTUNA):
        return b""
    if name.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        with suppress(pa.ArrowException):  # half of one, on its way
            return repr(pq.read_table(io.BytesIO(data)).to_pylist()).encode()
    return data


def on_disk(folder: Path) -> set[str]:
    """Return the digests of the rows that a folder holds; an error where a row is in two files of the dataset."""
    import pyarrow.parquet as pq

    from rackplan.studies.store import parts, read_rows

    every = [row["digest"] for part in parts(folder) for row in pq.read_table(part).to_pylist()]
    if len(every) != len(set(every)):
        raise ValueError("a row stands twice")
    return {row["digest"] for row in read_rows(folder)}
