"""A tuner over point options: Optuna proposes points, and every trial is a row of the study.

Trials come in generations of a fixed size, whatever the number of workers, each proposed by a sampler with a seed of
its own from what was found before: the same trials on one core and on a hundred. A search that was interrupted begins
again, and its trials so far have their rows already. Optuna keeps the trials in a journal in the study's folder.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackplan.studies.options import Value
from rackplan.studies.rows import OK, Row, unknown_rows
from rackplan.studies.spec import Point, Study
from topology.base.files import require_unlinked, unwritable

if TYPE_CHECKING:
    import optuna

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
        If the journal cannot be written, or the rows are of other trials.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = require_unlinked(folder / JOURNAL)
    before, best = set(rows), dict[str, Any]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's, of what is experimental
        try:
            for path in (journal, Path(f"{journal}.lock")):
                path.unlink(missing_ok=True)
            storage = JournalStorage(JournalFileBackend(str(journal)))
            for start, chosen in zip(count(0, study.draws), study.combinations(), strict=False):
                name = ",".join(f"{option}={value}" for option, value in chosen.items()) or "study"
                search = optuna.create_study(
                    storage=storage, study_name=name, direction="minimize" if study.least else "maximize"
                )
                if best:
                    search.enqueue_trial(best)
                for first in range(0, study.draws, GENERATION):
                    search.sampler = _sampler(f"{study.seed}|{name}|{first // GENERATION}")
                    trials, points = [], []
                    for number in range(first, min(first + GENERATION, study.draws)):
                        trials.append(search.ask())
                        options = _proposed(study, trials[-1])
                        points.append(study.point(start + number, {**chosen, **options}))
                    digests = {point.digest for point in points}
                    if before and before.isdisjoint(digests):
                        raise unknown_rows(folder, len(before))
                    before -= digests
                    yield points
                    for trial, point in zip(trials, points, strict=True):
                        row = rows[point.digest]
                        goal = row.get(study.goal) if row["status"] == OK else None
                        search.tell(trial, goal, TrialState.PRUNED if goal is None else TrialState.COMPLETE)
                with suppress(ValueError):  # no trial has a result
                    best = search.best_params
        except OSError as error:
            raise unwritable(journal, error) from None


def _sampler(seed: str) -> optuna.samplers.BaseSampler:
    import optuna

    return optuna.samplers.TPESampler(
        seed=int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big"),
        n_startup_trials=2 * GENERATION,
        multivariate=True,
        constant_liar=True,
    )


def _proposed(study: Study, trial: optuna.trial.Trial) -> dict[str, Value]:
    """Return the options that a trial proposes, and what they add to the price."""
    options: dict[str, Value] = {}
    more = 0.0
    for name, span in study.ranges.items():
        if span.choices:
            options[name] = span.choices[trial.suggest_categorical(name, range(len(span.choices)))]
        elif span.whole:
            options[name] = span.value(trial.suggest_int(name, int(span.low), int(span.high), log=span.log))
        else:
            options[name] = span.value(trial.suggest_float(name, span.low, span.high, log=span.log))
        if name in study.worth:
            more += study.worth[name] * (float(str(options[name]).rstrip(" xX")) - 1.0)
    if study.worth:
        options["price_more"] = float(f"{more:.6g}")
    return options
