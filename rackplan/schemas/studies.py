"""What a study prints, and the file that says what it is."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

RowData = dict[str, Any]
"""A row of the dataset, without what is null: the columns follow from the study's options."""


class ReasonData(TypedDict):
    """Points that have no figure for one reason.

    Attributes
    ----------
    reason:
        Status and words; of reasons that differ in numbers alone one is shown.
    points:
        How many.
    """

    reason: str
    points: int


class CurveData(TypedDict):
    """The best that a tuner found at one value of the option that it went along.

    Attributes
    ----------
    value:
        Of that option; null where there is one optimum.
    best:
        The row.
    """

    value: Any
    best: RowData


class StudyPrinted(TypedDict):
    """What ``rackplan study`` prints: how points fared, and the best of them.

    Attributes
    ----------
    kind:
        What a point is: score, sweep, plan or fleet.
    rows:
        Points on disk.
    statuses:
        How many of them have each status.
    varied:
        Options that differ between points.
    best:
        The cheapest row where all have a price, else that of most tokens per second and GPU; null without one.
    groups:
        By varied option of few values, the best row at each.
    pareto:
        Rows that none beats in both speeds, slowest for the user first.
    reasons:
        Why points have no figure, most first.
    results:
        The folder of the Parquet dataset.
    rows_sha256:
        SHA-256 of the rows without times and hosts: the same on every machine.
    files:
        What was written besides, by what it is.
    points, priced:
        Points of the study, and those that this run priced; absent where nothing was to be priced.
    replaced_workers:
        Workers and machines that died and were replaced.
    interrupted:
        Whether Ctrl-C ended the run.
    curve:
        The optimum at each value of the tuner's curve; of studies with ``optimize``.
    """

    kind: str
    rows: int
    statuses: dict[str, int]
    varied: list[str]
    best: RowData | None
    groups: dict[str, list[RowData]]
    pareto: list[RowData]
    reasons: list[ReasonData]
    results: str
    rows_sha256: str
    files: dict[str, str]
    points: NotRequired[int]
    priced: NotRequired[int]
    replaced_workers: NotRequired[int]
    interrupted: NotRequired[bool]
    curve: NotRequired[list[CurveData]]


class StudyFileData(TypedDict):
    """``study.json``: what the study of a folder is, enough to go on with it.

    Attributes
    ----------
    rackplan:
        The version that began it.
    base:
        The folder from which names of files are read first.
    study:
        The content of the ``STUDY.yaml``.
    """

    rackplan: str
    base: str
    study: dict[str, Any]
