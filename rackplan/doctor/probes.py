"""Parts of an installation that ``rackplan doctor`` tries, in a process of its own: each answers in a line of JSON.

A package may end its process (a wheel for another processor): the arguments say what to try, in order, and the last
answer says how far it came.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from pathlib import PurePosixPath


def main() -> None:
    """Try what the arguments after the first name, in order."""
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints does not mix with the answers
    for name in sys.argv[2:]:
        try:
            text, ok = _probe(name)(), True
        except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
            words = " ".join(str(error).split())[:300]
            text, ok = f"{type(error).__name__}: {words}" if words else type(error).__name__, False
        os.write(out, f"{json.dumps({'name': name, 'ok': ok, 'text': text})}\n".encode())
    os._exit(0)  # whatever threads a library left


def _probe(name: str) -> Callable[[], str]:
    word, _, package = name.partition(" ")
    if word == "import":
        return lambda: _imported(package)
    return PROBES[name]


def _imported(package: str) -> str:
    for module in _modules(package):
        import_module(module)
    return package


def _modules(package: str) -> list[str]:
    """Return the modules at the top of a package, by the files of its record; private ones are left out."""
    found = dict.fromkeys(_tops(metadata.files(package) or []))
    return [name for name in found if name.isidentifier() and not name.startswith("_")] or [
        package.lower().replace("-", "_")
    ]


def _tops(files: list[metadata.PackagePath]) -> Iterator[str]:
    for file in map(PurePosixPath, files):
        first = file.parts[0]
        if len(file.parts) == 1 and file.suffix in (".py", ".so", ".pyd"):
            yield first.partition(".")[0]
        elif len(file.parts) == 2 and file.name == "__init__.py":
            yield first


def _solver() -> str:
    import numpy as np

    from placement.cpsat import SubPacking, repack

    heavy_together = SubPacking(np.array([[True, False]] * 2 + [[False, True]] * 2), np.array([3, 3, 1, 1]))
    found = repack(heavy_together, limit=10, seed=0)[0]
    if found is None or heavy_together.peak_of(found) != 4:
        raise RuntimeError("CP-SAT finds no packing of four experts on two GPUs")
    return "CP-SAT packs four experts on two GPUs"


def _drawings() -> str:
    from topology.draw.render import FONTS, render

    names = sorted(path.stem for path in FONTS.glob("*.ttf"))
    if not names:
        raise RuntimeError(f"no font in {FONTS}")
    for form, begin in (("png", b"\x89PNG"), ("svg", b"<svg")):
        drawn = render('graph { a [label="GPU", pos="0,0", fontname="DejaVu Sans"] }', form)
        if begin not in drawn[:1000]:
            raise RuntimeError(f"Graphviz drew no {form.upper()}")
    return f"Graphviz draws, in the fonts that come with rackplan ({', '.join(names)})"


def _pages() -> str:
    from rackplan.render.html import page
    from rackplan.views.blocks import Chart, Heading

    made = page([Heading("Page"), Chart("chart", {"data": [], "layout": {}}, "a chart", 100)])
    return f"a page with its charts is {len(made) / 1e6:.1f} MB, in the fonts of who reads it"


def _catalog() -> str:
    from cost.resolve import model_names
    from topology import cluster_names, gpu_names, resolve_cluster

    clusters = cluster_names()
    for name in clusters:
        resolve_cluster(name)
    return f"{len(clusters)} clusters, {len(gpu_names())} GPUs and {len(model_names())} models"


def _folders() -> str:
    import tempfile

    from topology.files import scratch

    with scratch() as folder:
        (folder / "a").write_bytes(b"whole")
        (folder / "a").replace(folder / "b")
    here = "can" if os.access(".", os.W_OK) else "can not"
    return f"{tempfile.gettempdir()} can be written, this folder {here}"


PROBES: dict[str, Callable[[], str]] = {
    "solver": _solver,
    "drawings": _drawings,
    "pages": _pages,
    "catalog": _catalog,
    "folders": _folders,
}
