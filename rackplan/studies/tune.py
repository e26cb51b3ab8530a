"""A tuner over point options: Optuna proposes points, and every trial is a row of the study.

Trials come in generations of a fixed size, whatever the number of workers, each proposed by a sampler with a seed of
its own from the results before: the same trials on one core and on a hundred. A search that was interrupted begins
again, and its trials so far have their rows already; ``optuna.journal`` has the trials for Optuna's own tools.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from rackplan.studies.rows import Row
from rackplan.studies.spec import Point, Study, Value, uniform
from topology.base.errors import InputError
from topology.base.files import require_unlinked, unwritable

JOURNAL = "optuna.journal"
GENERATION = 8
"""Trials proposed per generation."""


def generations(study: Study, folder: Path, rows: Mapping[str, Row]) -> Iterator[list[Point]]:
    """Yield the points of each generation; ``rows`` must have theirs, by digest, before the next is asked for.

    The search at each value of the curve begins at the best of the value before: otherwise the curve shows which of
    the searches had more luck.

    Raises
    ------
    InputError
        If Optuna is not installed, or the journal cannot be written.
    """
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise InputError('--optimize needs Optuna: pip install "rackplan[tune]".') from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal, best = require_unlinked(folder / JOURNAL), dict[str, Any]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's, of what is experimental
        try:
            for path in (journal, Path(f"{journal}.lock")):
                path.unlink(missing_ok=True)
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
            for start, chosen in zip(count(0, study.draws), study.combinations(), strict=False):
                name = ",".join(f"{option}={value}" for option, value in chosen.items()) or "study"
                search = optuna.create_study(
                    storage=storage, study_name=name, direction="minimize" if study.least else "maximize"
                )
                if best:
                    search.enqueue_trial(best)
                for first in range(0, study.draws, GENERATION):
                    search.sampler = optuna.samplers.TPESampler(
                        seed=int(uniform(f"{study.seed}|{name}|{first}") * 2**32),
                        n_startup_trials=2 * GENERATION,
                        multivariate=True,
                        constant_liar=True,
                    )
                    trials, points = [], []
                    for number in range(first, min(first + GENERATION, study.draws)):
                        trials.append(search.ask())
                        options = _proposed(study, trials[-1])
                        points.append(study.point(start + number, {**chosen, **options}))
                    yield points
                    for trial, point in zip(trials, points, strict=True):
                        goal = rows[point.digest][study.goal]
                        failed = optuna.trial.TrialState.PRUNED if goal is None else None
                        search.tell(trial, goal, state=failed)
                with suppress(ValueError):  # no trial has a result
                    best = search.best_params
        except OSError as error:
            raise unwritable(journal, error) from None


def _proposed(study: Study, trial: Any) -> dict[str, Value]:
    """Return the options that a trial proposes, and what they add to the price."""
    options = {
        name: span.at(trial.suggest_float(name, 0.0, 1.0))
        if span.ends
        else span.values[trial.suggest_categorical(name, range(len(span.values)))]
        for name, span in study.ranges.items()
    }
    if study.worth:
        factors = {name: float(str(options[name]).rstrip(" xX")) for name in study.worth}
        more = sum(study.worth[name] * (factor - 1.0) for name, factor in factors.items())
        options["price_more"] = float(f"{more:.6g}")
    return options
