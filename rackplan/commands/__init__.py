"""Commands: parse the request, call the library, show the result."""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Plans": {"plan": "plan replan score what-if simulate replay"},
    "Clusters and money": {
        "capacity": "compare sweep size fleet study",
        "clusters": "draw traffic",
        "serve": "serve",
    },
    "Engines": {"engines": "export import-plan"},
    "Data": {"data": "import loads catalog validate schema"},
}
"""The commands of each section of the help, by the module here that has them."""
COMMANDS = {
    name: module
    for modules in SECTIONS.values()
    for module, names in modules.items()
    for name in names.split()
}
"""The module of each command; only that of the one that runs is imported."""
