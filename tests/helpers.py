"""What tests of several areas share, imported by name: ``from helpers import few_layers``."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, get_args

import networkx as nx
import numpy as np
from numpy.typing import NDArray

import rackplan
from cost.calibration.errors import ErrorOf, error_behind
from cost.calibration.serving import calibrated
from cost.config.build import model_from_config
from cost.model import Model
from cost.resolve import resolve_model
from placement.plan import Plan
from placement.plans.writing import plan_to_dict, plan_to_json
from topology.catalog import load_gpu
from topology.cluster import Cluster
from topology.fabrics import AnyFabric
from topology.fabrics.fabric import CabledFabric, ScaleOutSpec
from topology.routes import LinkLoads, Router, Traffic, traffic_matrix
from topology.structures import AnyDomain
from topology.structures.domain import DomainSpec

ROOT = Path(__file__).parents[1]


def script(path: str, name: str = "") -> ModuleType:
    """A file of the checkout that is run, not imported (``benchmarks/study.py``), as a module called ``name``."""
    spec = importlib.util.spec_from_file_location(name or Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def link_loads(cluster: Cluster, traffic: Traffic | NDArray[np.float64]) -> LinkLoads:
    """Loads of a traffic, or of a matrix of bytes, on the links of a cluster."""
    if not isinstance(traffic, Traffic):
        traffic = traffic_matrix(traffic, len(cluster.gpus))
    return Router(cluster).loads(traffic)


def per_edge(loads: LinkLoads) -> dict[tuple[str, str], float]:
    """Bytes of every directed link by its two ends."""
    return {link.ends: link.load_bytes for link in loads.links(np.arange(loads.network.links))}


def killed(script: str, folder: Path, *args: object) -> Path:
    """Run a script that writes files into a folder, killed as it moves ``plan.json`` there; return what it left."""
    call = [sys.executable, "-c", _KILLED + script, *map(str, args)]
    ended = subprocess.run(call, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert ended.returncode == -signal.SIGKILL
    (left,) = folder.glob(".rackplan-*")
    return left


_KILLED = """
import os, signal, sys
from pathlib import Path
moved = Path.replace
def move(path, target):
    if target.name == "plan.json":
        os.kill(os.getpid(), signal.SIGKILL)
    return moved(path, target)
Path.replace = move
"""


@dataclass(frozen=True)
class Result:
    """What one run of a command left behind."""

    code: int
    out: str
    err: str
    command: str = ""

    @property
    def data(self) -> Any:
        """Standard output as the one JSON object that it must be, in strict JSON, without the version that it has.

        It has what the schema of the command says, and nothing else.
        """

        def no_constant(text: str) -> NoReturn:
            raise AssertionError(f"{text} is not JSON")

        from schema_check import require_schema  # loads the schemas of all commands

        found = json.loads(self.out, parse_constant=no_constant)
        assert isinstance(found, dict)
        require_schema(self.command, found)
        del found["schema_version"]
        return found

    @property
    def error_line(self) -> str:
        """The one line on standard error; nothing on standard output."""
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("rackplan: ")
        assert "Traceback" not in self.err
        return lines[0]


Run = Callable[..., Result]
"""``run(ARGS...)``: the command line in this process, in an empty folder."""


def plan_of(
    model: object, cluster: str = "hgx-h100", phase: str | None = "decode", to: str = "plan"
) -> tuple[str, ...]:
    """The quick plan of a model on a cluster: of one phase, or of whole requests (None)."""
    alone = () if phase is None else ("--phase", phase)
    where = ("--model", str(model), "--cluster", cluster)
    return ("plan", *alone, *where, "--time-limit", "0", "-o", to)


PLAN = plan_of("mixtral-8x7b")
"""A plan in a second or two; ``prepared(*PLAN)`` makes it once."""


OWN_CLUSTER: dict[str, Any] = {
    "domains": [{"gpu": "mine", "gpus": 8, "gpus_per_node": 8, "structure": "mesh", "link": "100 GB/s"}],
    "gpus": {
        "mine": {
            "hbm_bytes": "288 GB",
            "hbm_bytes_per_s": "16 TB/s",
            "bf16_flop_per_s": "5 Pflop/s",
            "usd_per_h": "4 USD/h",
        }
    },
}
"""A cluster of a GPU that the catalog lacks."""


@cache
def few_layers(name: str, layers: int) -> Model:
    """A model of the catalog cut to its first layers: quick to place, and read back from a plan file."""
    return model_from_config({**resolve_model(name).config, "num_hidden_layers": layers}, name="few layers")


@cache
def planned(model: str, cluster: str, **options: Any) -> Plan:
    """A plan of the first that a search finds, made once for all tests that ask for it."""
    if not {"isl", "osl", "phase", "context"} & set(options):
        options["phase"] = "decode"
    return rackplan.plan(model, cluster, time_limit_s=0, **options)


def write_plan(folder: Path, plan: Plan) -> None:
    """Write a plan into a new folder, as the command does but for page and drawing."""
    folder.mkdir()
    (folder / "plan.json").write_text(plan_to_json(plan_to_dict(plan, command="rackplan plan ...")))


def error_of(gpu: str, engine: str = "") -> ErrorOf:
    """The error of predictions for a chip of the catalog under an engine; empty: all of them."""
    found = error_behind(calibrated(load_gpu(gpu), engine))
    assert found is not None
    return found


REMOVED = object()


def changed(data: Any, *path: Any, to: Any = REMOVED) -> Any:
    """A copy of nested data with the value at ``path`` replaced, or removed."""
    data = copy.deepcopy(data)
    place = data
    for key in path[:-1]:
        place = place[key]
    if to is REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return data


def nodes_of_kind(graph: nx.Graph[str], kind: str) -> list[str]:
    """Nodes of a cluster graph of one kind, in the order of the graph."""
    return [node for node, data in graph.nodes(data=True) if data["kind"] == kind]


def rate_to(graph: nx.Graph[str], node: str, kind: str) -> float:
    """Bytes/s per direction between a node and its neighbours of one kind."""
    return sum(
        graph.edges[node, other]["bytes_per_s"] for other in graph[node] if graph.nodes[other]["kind"] == kind
    )


def fabric_like(base: ScaleOutSpec, kind: str, **sizes: Any) -> CabledFabric:
    """A fabric of another kind, with the fields of ``base`` that it has and ``sizes``."""
    return _other(base, AnyFabric, "kind", kind, sizes)


def domain_like(base: DomainSpec, structure: str, **sizes: Any) -> DomainSpec:
    """A domain of another structure, with the fields of ``base`` that it has and ``sizes``."""
    return _other(base, AnyDomain, "structure", structure, sizes)


def _other(base: Any, union: Any, tag: str, name: str, sizes: dict[str, Any]) -> Any:
    kind = next(one for one in get_args(get_args(union)[0]) if getattr(one, tag) == name)
    names = {one.name for one in fields(kind)} - {tag}
    return kind(**{one.name: getattr(base, one.name) for one in fields(base) if one.name in names} | sizes)
