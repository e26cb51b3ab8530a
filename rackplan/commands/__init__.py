"""Commands: parse the request, call the library, show the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Summary(NamedTuple):
    """A command before its options are known: the module here that has it, and what it does in a sentence."""

    module: str
    text: str


SECTIONS: Mapping[str, Mapping[str, Summary]] = {
    "Plans": {
        "plan": Summary("plan", "Place layers and experts on GPUs, and predict the step."),
        "replan": Summary("plan", "Re-plan for new loads or failures with few moves."),
        "score": Summary(
            "plan",
            "Score a plan again, under its own or other loads and routing traces; several plans side by side.",
        ),
        "what-if": Summary("plan", "Show the gain of each possible change."),
        "simulate": Summary("plan", "Simulate requests under load."),
        "replay": Summary("plan", "Replay recorded loads through online balancers."),
    },
    "Clusters and money": {
        "compare": Summary("capacity", "Compare clusters for one model."),
        "sweep": Summary("capacity", "Find the best layouts for whole requests or one phase."),
        "size": Summary("capacity", "Size a fleet for a demand or a budget."),
        "study": Summary("capacity", "Price a grid or a sample of points, on all cores or a cluster."),
        "roofline": Summary(
            "capacity", "Write the blackboard: what first principles say of a model on clusters."
        ),
        "economics": Summary(
            "capacity", "Read prices: cache bytes, costs of a cached token, training and inference."
        ),
        "draw": Summary("clusters", "Draw a cluster: tiers, domains, GPUs and their links."),
        "traffic": Summary("clusters", "Route traffic between GPUs over the links."),
        "serve": Summary(
            "serve", "Serve a local page to explore clusters, place experts and simulate failures."
        ),
    },
    "Engines": {
        "export": Summary(
            "engines",
            "Export a plan to an engine's placement format, with commands or files to launch the engine.",
        ),
        "import-plan": Summary("engines", "Import an engine's placement file, or only check it."),
    },
    "Data": {
        "import": Summary("data", "Make a cluster file from the output of other tools."),
        "loads": Summary("data", "Summarize recordings of expert loads and routing traces."),
        "catalog": Summary("data", "Show GPUs, clusters and models, each figure with its source."),
        "validate": Summary("data", "Compare predictions with measured points."),
        "schema": Summary(
            "data", "Print the JSON Schema of a request, of a command's --json output, or of a file."
        ),
    },
}
"""The commands of each section of the help, which needs no more; the module of the one that runs is imported."""
COMMANDS = {name: summary for commands in SECTIONS.values() for name, summary in commands.items()}
