"""Engines by name, and reading or checking the files of any engine."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from cost.experts.loads import ExpertLoads
from placement.engines import NAMES
from placement.engines.engine import Engine
from placement.engines.findings import BAD, Finding, first_of, require_sound
from placement.engines.mapping import ExpertMapping, ModelFacts
from placement.engines.phy2log import inspect_phy2log
from placement.engines.strict_text import require_file
from topology.base.errors import InputError, input_name

ENGINES: dict[str, Engine] = {
    name: import_module(f"placement.engines.{name.replace('-', '_')}").ENGINE for name in NAMES
}
PHY2LOG = "npy"
MOST_RANKS = 1 << 20


def require_engine(name: str, field: str) -> Engine:
    """Return the engine of that name; ``field`` is the input that gave it.

    Raises
    ------
    InputError
        If there is none.
    """
    if name not in ENGINES:
        raise InputError(f"expected {', '.join(ENGINES)}.", field=field, value=name)
    return ENGINES[name]


def read_mapping(path: Path, kind: str, facts: ModelFacts, ranks: int) -> ExpertMapping:
    """Read the plan file of an engine, or EPLB's ``phy2log`` (``npy``), for a model on ``ranks`` GPUs.

    Raises
    ------
    InputError
        If there is no such kind, the file cannot be read, or the engine would refuse or misread it.
    """
    require_ranks(ranks, "ep")
    if kind == PHY2LOG:
        return require_sound(path, "EPLB (phy2log)", inspect_phy2log(path, facts, ranks))
    if kind not in ENGINES:
        raise InputError(f"expected {', '.join(ENGINES)} or {PHY2LOG}.", field="kind", value=kind)
    require_file(path)
    engine = ENGINES[kind]
    return require_sound(path, engine.title, engine.inspect(path, facts, ranks))


@dataclass(frozen=True)
class Checked:
    """The findings.

    Attributes
    ----------
    loads:
        The engine starts with it.
    right:
        It does, and places experts as the file says, each at least once.
    unreadable:
        Why nothing could be read of it; empty where it could.
    balancedness:
        Mean over max GPU load as the engine splits tokens; None without loads, or without a sound placement.
    """

    file: str
    engine: Engine
    findings: tuple[Finding, ...]
    unreadable: str = ""
    balancedness: float | None = None

    @property
    def loads(self) -> bool:
        """Whether the engine starts with it."""
        return not any(finding.kind == "refused" for finding in self.findings)

    @property
    def right(self) -> bool:
        """Whether the engine starts with it and applies it correctly."""
        return not any(finding.kind in BAD for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One line: whether it loads correctly, and the first reason if not."""
        if self.right:
            return f"{self.file} loads in {self.engine.title} and is valid."
        blocking = [finding for finding in self.findings if finding.kind in BAD]
        blocking.sort(key=lambda finding: finding.kind != "refused")
        word = "does not load" if not self.loads else "loads but is incorrect"
        return first_of(blocking, f"{self.file} {word} in {self.engine.title}")


def require_ranks(ranks: int, field: str) -> None:
    """Check a number of GPUs.

    Raises
    ------
    InputError
        If it is not from 1 to :data:`MOST_RANKS`.
    """
    if not 1 <= ranks <= MOST_RANKS:
        raise InputError(f"expected 1 to {MOST_RANKS:,} GPUs.", field=field, value=ranks)


def check_file(
    path: Path, engine: Engine, facts: ModelFacts, ranks: int, loads: ExpertLoads | None = None, tp: int = 1
) -> Checked:
    """Check a file for an engine that runs ``ranks`` GPUs in the EP group.

    With ``loads`` its balancedness is judged too, as the engine splits tokens with attention of tensor parallelism
    ``tp``.

    Raises
    ------
    InputError
        If there is no such file, ``ranks`` is no number of GPUs, or ``tp`` does not divide it.
    """
    require_ranks(ranks, "ep")
    if tp < 1 or ranks % tp:
        raise InputError(f"does not divide the {ranks} GPUs of the EP group.", field="tp", value=tp)
    require_file(path)
    try:
        inspected = engine.inspect(path, facts, ranks)
    except InputError as error:
        return Checked(str(path), engine, (Finding("the whole file", str(error), "refused"),), str(error))
    balance = None
    judged = f"not evaluated without {input_name('loads')}"
    if loads is not None and inspected.mapping is not None:
        balance, words = _balance(engine, inspected.mapping, loads, tp)
        judged = f"{balance:.4f} under the loads, {words}"
    elif loads is not None:
        judged = "not evaluated: the file has no valid placement"
    findings = (*inspected.findings, *inspected.around, Finding("balancedness", judged, "note"))
    return Checked(str(path), engine, findings, balancedness=balance)


def _balance(engine: Engine, mapping: ExpertMapping, loads: ExpertLoads, tp: int) -> tuple[float, str]:
    """Mean over max GPU load, the mean over layers and loads, as an engine splits; and in words how that is."""
    part = mapping.assignment()
    shares = engine.shares(part, tp)
    words = "with tokens of each expert split evenly over its copies"
    if shares is not None:
        words = f"with the split of {engine.title} at tensor parallelism {tp}"
    balances = np.stack([part.balancedness(tokens, shares) for tokens in loads.tokens])
    return float(balances.mean()), words
