"""Start a study from its request, for the command and the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from rackplan.requests import StudyRequest
from rackplan.studies.result import StudyResult
from rackplan.studies.run import open_study, run_study
from rackplan.studies.spec import Study, study_of
from topology.base.errors import InputError
from topology.base.values import plain


def opened(request: StudyRequest) -> tuple[Study, Path]:
    """Return the requested study, and the folder of its results.

    Raises
    ------
    InputError
        If the study says what cannot be, or its folder holds another.
    """
    study, folder = request.study, request.folder
    if isinstance(study, Mapping):
        if folder is None:
            raise InputError("a study given as a mapping needs a folder for its results.", field="folder")
        return study_of(plain(dict(study)), "study", Path.cwd()), folder
    return open_study(Path(study), folder)


def begin(
    request: StudyRequest, wanted: Study, folder: Path, say: Callable[[str], None] = lambda _: None
) -> StudyResult:
    """Price the points of a study that are not in its folder yet, and return all points.

    Raises
    ------
    InputError
        If what is needed is not installed.
    """
    return run_study(
        wanted,
        folder,
        optimize=request.optimize,
        engine=request.engine,
        address=request.address,
        workers=request.workers,
        say=say,
    )
