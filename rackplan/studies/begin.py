"""A study in one line of Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rackplan.asked import asked
from rackplan.calls import recorded
from rackplan.studies.result import StudyResult
from rackplan.studies.run import open_study, run_study
from rackplan.studies.spec import study_of
from topology.base.errors import InputError


@recorded
@asked
def study(
    study: str | Path | Mapping[str, object],
    folder: str | Path | None = None,
    *,
    optimize: bool = False,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
) -> StudyResult:
    """Price the points of a study that are not in its folder yet, and return all of them.

    Parameters
    ----------
    study:
        A ``STUDY.yaml``, its content, or the folder of a study to go on with.
    folder:
        For the results; of a study's folder it is that.
    optimize:
        Search the ranges under ``optimize``.
    engine, address, workers:
        ``local`` or ``ray``, the address of a Ray cluster, and points priced at once (None: all cores).

    Raises
    ------
    InputError
        If the study says what cannot be, its folder holds another, or what is needed is not installed.
    """
    if isinstance(study, Mapping):
        if folder is None:
            raise InputError("`folder`: a study that is no file needs one for its results.")
        wanted, where = study_of(dict(study), "study", Path.cwd()), Path(folder)
    else:
        wanted, where = open_study(Path(study), None if folder is None else Path(folder))
    return run_study(wanted, where, optimize=optimize, engine=engine, address=address, workers=workers)
