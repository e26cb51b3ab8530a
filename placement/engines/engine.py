"""Interface of an engine: writing, reading and checking its plan file, and starting the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from cost.experts.assignment import Assignment
from cost.experts.dispatch import DispatchPolicy
from placement.arrays import Floats
from placement.engines.findings import BAD, Finding, Inspected, NoRowsError, RowRules, Rows, inspect_rows
from placement.engines.mapping import ExpertMapping, ModelFacts
from topology.base.errors import called

Role = Literal["both", "prefill", "decode"]


@dataclass(frozen=True)
class Launch:
    """Launch settings of an engine for one replica.

    Attributes
    ----------
    file:
        Path of the plan file, as the engine shall find it.
    model:
        What the engine loads: a Hugging Face id, or a path.
    ep, tp, attention_dp, nodes, redundant:
        GPUs of the EP group, tensor-parallel width of attention, attention groups, hosts of a replica, extra copies
        per layer.
    split:
        How the plan expects tokens to be split over copies.
    model_type, architecture:
        As in the model's config.json; empty where nothing says.
    cut:
        Layers of each pipeline stage.
    rank, address:
        What stands for the number of a host, counted from 0, and for the name of the first one.
    role:
        What the replica does: prefill, decode, or both.
    module:
        Python module that serves in place of the engine's own command; empty: none.
    dcp, pcp:
        Context parallelism, as of :class:`cost.inputs.layout.Layout`.
    offset:
        Added to the ports where a replica's hosts meet: replicas that share a host differ in it.
    """

    file: str
    model: str
    ep: int
    tp: int
    attention_dp: int
    nodes: int
    redundant: int
    split: DispatchPolicy
    model_type: str = ""
    architecture: str = ""
    cut: tuple[int, ...] = (0,)
    rank: str = "RANK"
    address: str = "HOST"
    role: Role = "both"
    module: str = ""
    offset: int = 0
    dcp: int = 1
    pcp: int = 1

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return len(self.cut)

    @property
    def world(self) -> int:
        """GPUs of a replica."""
        return self.ep * self.stages

    @property
    def gpus_per_node(self) -> int:
        """GPUs that a replica has on each host."""
        return max(1, self.world // max(1, self.nodes))


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
        How it can split an expert's tokens over copies; the first is what it does by default.
    split_words:
        The same in words.
    framework:
        What Dynamo calls it; empty where Dynamo does not run it.
    port:
        Where it takes requests by default.
    ranks_are_tasks:
        Whether each GPU has a process that something else starts (MPI), not one a host.
    contexts:
        What it says of context parallelism, ``dcp`` and ``pcp``, by the version read; absent: it has none.
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
    framework: ClassVar[str] = ""
    port: ClassVar[int] = 8000
    ranks_are_tasks: ClassVar[bool] = False
    contexts: ClassVar[Mapping[str, str]] = {}
    rules: ClassVar[RowRules]

    @property
    def suffix(self) -> str:
        """The usual ending of a file."""
        return self.suffixes[0] if self.suffixes else ".jsonl"

    @abstractmethod
    def write(self, mapping: ExpertMapping, facts: ModelFacts) -> str:
        """Return the text of the file for a mapping."""

    @abstractmethod
    def read(self, path: Path, facts: ModelFacts, ranks: int, findings: list[Finding]) -> Rows:
        """Return the rows of a file, what is wrong with the rest of it in ``findings``.

        Raises
        ------
        NoRowsError
            If it has none, or what is wrong with the rest leaves nothing to look at.
        """

    def shares(self, part: Assignment, tp: int) -> Floats | None:
        """Return the fraction of its expert's tokens that each slot takes, ``[layers, slots]``; None: as by policy.

        Of an engine that splits in a way of its own, with attention of tensor parallelism ``tp``.
        """
        return None

    def around(self, facts: ModelFacts, ranks: int, *, read: bool) -> tuple[Finding, ...]:
        """Return what is not the file's own fault; ``read``: whether rows were found in it."""
        return ()

    @abstractmethod
    def flags(self, launch: Launch) -> list[str]:
        """Return the lines to start it with."""

    def command(self, launch: Launch) -> list[str]:
        """Return the lines of one command that starts it on a host."""
        return [line for line in self.flags(launch) if not line.startswith("#")]

    def listen(self, port: int) -> str:
        """Return the flags to accept requests from any address."""
        return f"--host 0.0.0.0 --port {port}"

    def files(self, launch: Launch) -> dict[str, str]:
        """Return further files that the engine reads from the same folder, by name."""
        return {}

    def cannot_spread(self, launch: Launch) -> str:
        """Return why one process per host cannot start it with ranks in the plan's order; empty if it can."""
        return ""

    def answers_everywhere(self, launch: Launch) -> bool:
        """Whether every host of a replica answers when asked for its health."""
        return True

    def serves_everywhere(self, launch: Launch) -> bool:
        """Whether every host of a replica takes requests; else the first one does."""
        return False

    def warnings(self, launch: Launch) -> list[str]:
        """Return warnings before the launch, such as a split that differs from the plan's."""
        if launch.split in self.splits:
            return []
        reason = f"the plan was made for split {launch.split}, {self.title.partition(' ')[0]} splits evenly"
        return [f"{reason}: make it with rackplan plan --split even"]

    def cannot_hold(self, mapping: ExpertMapping) -> str:
        """Return why it cannot represent a mapping, and the option that avoids it; empty if it can."""
        return ""

    def cannot_run(self, launch: Launch) -> str:
        """Return why it cannot be started this way, and the option that avoids it; empty if it can."""
        return ""

    def no_context(self, launch: Launch) -> str:
        """Return why it cannot have a plan's context parallelism, and the option that avoids it; empty if it can."""
        for name, width in (("dcp", launch.dcp), ("pcp", launch.pcp)):
            if width > 1 and name not in self.contexts:
                option = f"make the plan with rackplan plan {called(name)} 1"
                return f"{self.title} ({self.version}) has no {name} beside a map of experts; {option}"
        return ""

    def inspect(self, path: Path, facts: ModelFacts, ranks: int) -> Inspected:
        """Read and check a file, for a model and a number of ranks.

        Raises
        ------
        InputError
            If nothing can be read of it.
        """
        findings: list[Finding] = []
        try:
            rows = self.read(path, facts, ranks, findings)
        except NoRowsError as error:
            return Inspected(None, (*findings, *error.findings), self.around(facts, ranks, read=False))
        inspected = inspect_rows(rows, self.rules, facts, ranks)
        sound = not any(finding.kind in BAD for finding in findings)
        around = self.around(facts, ranks, read=True)
        return Inspected(inspected.mapping if sound else None, (*findings, *inspected.findings), around)
