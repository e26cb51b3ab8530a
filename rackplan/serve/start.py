"""What the page starts with: names of the catalog, formats, and the plans that were opened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from topology.base.errors import InputError
from topology.base.reading import read_text

MOST_PLANS = 50
EXAMPLE = {"model": {"name": "deepseek-v3"}, "clusters": [{"name": "gb200-nvl72"}]}
"""What is open where no plan is."""


@dataclass(frozen=True)
class OpenPlan:
    """A plan of the command line: its name, and its text."""

    name: str
    text: str

    @cached_property
    def command(self) -> str:
        """The command that made it, where the file says so."""
        return str(json.loads(self.text).get("inputs", {}).get("command", ""))

    @cached_property
    def asked(self) -> dict[str, Any]:
        """What the page asks where it starts from this plan, as far as the catalog knows its names."""
        from cost.resolve import model_names
        from topology.catalog import cluster_names

        data = json.loads(self.text)
        model, cluster, inputs = data.get("model"), data.get("cluster"), data.get("inputs", {})
        work = inputs.get("workload", {})
        asked: dict[str, Any] = dict(EXAMPLE)
        if model in model_names():
            asked["model"] = {"name": model}
        elif isinstance(inputs.get("model"), dict):
            asked["model"] = {"name": f"{model}.json", "text": json.dumps(inputs["model"])}
        if str(cluster).partition("@")[0] in cluster_names():
            asked["clusters"] = [{"name": cluster}]
        if isinstance(work.get("context"), int):
            asked |= {"isl": max(1, work["context"] - 512), "osl": 1024}
        for key in ("kv_dtype", "draft_tokens"):
            if key in work:
                asked[key] = work[key]
        return asked


@dataclass(frozen=True)
class Start:
    """What the command line opened."""

    plans: tuple[OpenPlan, ...] = ()

    @classmethod
    def of(cls, path: Path | None) -> Start:
        """Return the plan of a file, of a folder of results, or all plans of the folders in a folder.

        Raises
        ------
        InputError
            If there is none.
        """
        from placement.plans.reading import PLAN_FILE

        if path is None:
            return cls()
        if path.is_dir() and not (path / PLAN_FILE).is_file():
            found = sorted(path.glob(f"*/{PLAN_FILE}"))[:MOST_PLANS]
            if not found:
                raise InputError(f"{path}: neither a {PLAN_FILE} in this folder nor folders with one.")
            return cls(tuple(OpenPlan(one.parent.name, _plan_text(one)) for one in found))
        file = path / PLAN_FILE if path.is_dir() else path
        return cls((OpenPlan(file.resolve().parent.name, _plan_text(file)),))

    @property
    def asked(self) -> dict[str, Any]:
        """What the page asks first: that of the first plan, or a real example."""
        return self.plans[0].asked if self.plans else EXAMPLE

    def data(self) -> dict[str, Any]:
        """Return what the page is told at its start."""
        from cost.dtypes import CACHE_DTYPES, DTYPES
        from cost.money.prices import PRICE_BASES
        from cost.resolve import model_names, model_title
        from topology.catalog import cluster_names

        return {
            "models": [{"name": name, "title": model_title(name)} for name in model_names()],
            "clusters": list(cluster_names()),
            "weights": list(DTYPES),
            "kv_dtypes": list(CACHE_DTYPES),
            "price_bases": list(PRICE_BASES),
            "asked": self.asked,
            "plans": [plan.name for plan in self.plans],
        }


def _plan_text(path: Path) -> str:
    from placement.plans.reading import read_plan

    text = read_text(path, str(path))
    read_plan(path)  # what is no plan is said on the command line
    return text
