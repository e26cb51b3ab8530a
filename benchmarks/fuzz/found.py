"""Which functions of the packages bring text or bytes in, found in their code; and which of those read only our own."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from reader import Reader
from watched import PACKAGES, Watch

ROOT = Path(__file__).resolve().parents[2]
_CALLS = {
    *(
        "open",
        "read_text",
        "read_bytes",
        "ZipFile",
        "safe_open",
        "ParquetFile",
        "read_table",
        "memmap",
        "frombuffer",
    ),
    *("parse_yaml", "parse_json", "parse_xml", "load_yaml", "load_torch_file", "read_npy_header", "map_npy"),
    *("read_source", "read_json", "read_yaml", "read_json_lines", "npy_array", "npz_array", "npz_names"),
}
"""Called by name or as a method of anything."""
_OF = {
    "json": {"load", "loads"},
    "np": {"load"},
    "yaml": {"load"},
    "csv": {"reader", "DictReader"},
    "Table": {"read"},
    "pickle": {"load", "loads"},
}
"""Called of these names."""
_ANY = re.compile(rf"\b({'|'.join(sorted(_CALLS | set().union(*_OF.values())))})\(")

OWN = {
    "topology.catalog:FigureFile.__init__": "the catalog",
    "topology.importers.infragraph:_ones": "bits of a number",
    "cost.attention.grouped:GroupedQuery.cache_bytes": "a formula",
    "cost.attention.sparse:AsIfSparse.read_bytes": "a formula",
    "cost.terms.attention:_decode_scores": "a formula",
    "cost.limited_use:_choices": "loads that were read",
    "cost.lecture:model_price_step_context.over": "a formula",
    "cost.calibration.alltoall:load_kernels": "the calibration",
    "cost.calibration.errors:error_table": "the calibration",
    "cost.calibration.first_token:first_token_calibration": "the calibration",
    "cost.calibration.kernels:kernel_rates": "the calibration",
    "cost.calibration.kernels:_shipped": "the calibration",
    "cost.calibration.kernels:neighbour": "the calibration",
    "cost.calibration.residual:shipped_residual": "the calibration",
    "cost.calibration.serving:_calibration": "the calibration",
    "cost.config.unmodelled:_harmless": "a list of ours",
    "cost.resolve:_entry": "the catalog",
    "cost.validation.recipes:_recipes": "recipes that ship",
    "placement.engines.lmdeploy:_found": "an array of this process",
    "placement.online.state:OnlineState.save": "writes",
    "rackplan.serve.app:_file": "the page",
    "rackplan.serve.app:_plotly": "the page",
    "rackplan.serve.jobs:Jobs._listen": "its own worker's lines",
    "rackplan.serve.worker:Desk.read": "its own server's lines",
    "rackplan.studies.engines:_nowhere": "writes nowhere",
    "rackplan.studies.engines:LocalEngine.began": "its own worker's mark",
    "rackplan.studies.work:_in_time": "writes nowhere",
    "rackplan.output:_vouches": "whether a word of ours stands in a file that would be replaced",
    "rackplan.doctor.examine:_objects": "objects of this process",
    "rackplan.doctor.installed:_as_installed": "what is installed",
    "rackplan.doctor.installed:_asked": "what is installed",
    "rackplan.doctor.installed:own_files": "what is installed",
    "rackplan.doctor.installed:install": "what is installed",
    "rackplan.output:steady_streams": "writes nowhere",
    "rackplan.render.html:page.asset": "the page",
    "rackplan.render.pictures:_text": "the page",
    "rackplan.commands.clusters:_check_readable": "the cluster file that is about to be written",
    "rackplan.views.study_charts:shown": "a cell that a study wrote, else the text as it is",
    "rackplan.studies.work:pack": "bytes of files, for workers elsewhere",
    "rackplan.studies.folder:_alone": "a lock",
    "topology.files:_make": "writes",
    "rackplan.studies.tune:_whole_lines": "cuts off a line, reads nothing of the rest",
}
"""Functions that read what ships with the packages, or write, with what that is."""


BELOW = (
    "cost.traces.arrays:_header", "cost.traces.torch_file:_Reader._place", "topology.npy:map_npy", "topology.reading:read_bytes",
    "rackplan.studies.store:_table",
)  # fmt: skip
"""What others of the list call; the wide test looks whether it is entered."""


def reading_functions() -> set[str]:
    """Return the functions that call what brings text or bytes in, as ``module:name``."""
    found: set[str] = set()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            text = path.read_text(encoding="utf-8")
            if _ANY.search(text):
                found |= {f"{module}:{name}" for name in _inside(ast.parse(text), ()) if name}
    return found


def _inside(node: ast.AST, names: tuple[str, ...]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if isinstance(child, ast.Call) and _reads(child.func):
            yield ".".join(names)
        yield from _inside(child, (*names, child.name) if named else names)  # type: ignore[attr-defined]


def _reads(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id in _CALLS
    if not isinstance(called, ast.Attribute):
        return False
    of = called.value.id if isinstance(called.value, ast.Name) else ""
    return called.attr in _OF.get(of, ()) or (called.attr in _CALLS and of not in ("os", "webbrowser"))


def entered(reader: Reader, watch: Watch) -> set[str]:
    """Return the functions of the packages that a reader's whole inputs run, as ``module:name``."""
    found: set[str] = set()

    def hear(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            name = str(frame.f_globals.get("__name__"))
            if name.partition(".")[0] in PACKAGES:
                found.add(f"{name}:{code.co_qualname.replace('<locals>.', '')}")

    for seed in reader.seeds():
        path = watch.put(seed.file, seed.data)
        sys.setprofile(hear)
        threading.setprofile(hear)
        try:
            reader.read(path)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    return found
