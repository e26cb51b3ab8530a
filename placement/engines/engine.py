"""What one engine's module offers: how its plan file is written, read and judged, and how the engine is started."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cost.dispatch import DispatchPolicy
from placement.engines.findings import BAD, Finding, Inspected, NoRowsError, RowRules, Rows, inspect_rows
from placement.engines.mapping import ExpertMapping, ModelFacts


@dataclass(frozen=True)
class Launch:
    """What an engine is started with, for one replica.

    Attributes
    ----------
    file:
        Path of the plan file, as the engine shall find it.
    model:
        Name of the model.
    ep, tp, attention_dp, stages, nodes, redundant:
        GPUs of the EP group, tensor-parallel width of attention, attention groups, pipeline stages, hosts of a
        replica, extra copies per layer.
    split:
        How the plan expects tokens to be split over copies.
    model_type:
        As in the model's config.json.
    """

    file: str
    model: str
    ep: int
    tp: int
    attention_dp: int
    stages: int
    nodes: int
    redundant: int
    split: DispatchPolicy
    model_type: str = ""


class Engine(ABC):
    """An engine that loads plans; a module of its own has the one subclass, and its instance ``ENGINE``.

    Attributes
    ----------
    name, title, version:
        Its name on the command line, its name in words, and the sources that its rules were read from.
    released:
        Whether a released version loads the file.
    suffixes:
        Endings that a file must have; the first is the usual one. Empty: any.
    splits:
        How it can split an expert's tokens over copies; the first is what it does unless told.
    split_words:
        The same in words.
    nearest_copy:
        Where it splits by source rank: whether a rank takes the nearest copy; else copy rank mod copies.
    rules:
        What it does about each mistake that rows of expert ids can have.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    version: ClassVar[str]
    released: ClassVar[bool] = True
    suffixes: ClassVar[tuple[str, ...]] = ()
    splits: ClassVar[tuple[DispatchPolicy, ...]] = ("even",)
    split_words: ClassVar[str]
    nearest_copy: ClassVar[bool] = True
    rules: ClassVar[RowRules]

    @abstractmethod
    def write(self, mapping: ExpertMapping, facts: ModelFacts) -> str:
        """Return the text of the file for a mapping."""

    @abstractmethod
    def read(self, path: Path, facts: ModelFacts, ranks: int, found: list[Finding]) -> Rows:
        """Return the rows of a file, what is wrong with the rest of it in ``found``.

        Raises
        ------
        NoRowsError
            If it has none, or what is wrong with the rest leaves nothing to look at.
        """

    def around(self, facts: ModelFacts, ranks: int, *, read: bool) -> tuple[Finding, ...]:
        """Return what is not the file's own fault; ``read``: whether rows were found in it."""
        del facts, ranks, read
        return ()

    @abstractmethod
    def flags(self, launch: Launch) -> list[str]:
        """Return the lines to start it with."""

    def warnings(self, launch: Launch) -> list[str]:
        """Return what a person should know before starting it so: that it splits otherwise than the plan expects."""
        if launch.split in self.splits:
            return []
        made = f"the plan was made for split {launch.split}, {self.title.partition(' ')[0]} splits evenly"
        return [f"{made}: make it with rackplan plan `split` even"]

    def cannot_hold(self, mapping: ExpertMapping) -> str:
        """Return why it cannot hold a mapping, and the option that avoids it; empty where it can."""
        del mapping
        return ""

    def cannot_run(self, launch: Launch) -> str:
        """Return why it cannot be started so, and the option that avoids it; empty where it can."""
        del launch
        return ""

    def inspect(self, path: Path, facts: ModelFacts, ranks: int) -> Inspected:
        """Read and check a file, for a model and a number of ranks.

        Raises
        ------
        InputError
            If nothing can be read of it.
        """
        found: list[Finding] = []
        try:
            rows = self.read(path, facts, ranks, found)
        except NoRowsError as error:
            return Inspected(None, (*found, *error.findings), self.around(facts, ranks, read=False))
        inspected = inspect_rows(rows, self.rules, facts, ranks)
        sound = not any(finding.kind in BAD for finding in found)
        around = self.around(facts, ranks, read=True)
        return Inspected(inspected.mapping if sound else None, (*found, *inspected.findings), around)
