"""Build the source distribution and the wheel, install the wheel far from the checkout, and try it there.

    python tools/wheel.py [-o dist]

The wheel is built of the source distribution and of the checkout: both must be the same bytes. It must have every
file of the packages and the licences; the source distribution must have the tests.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import Parser
from hashlib import sha256
from pathlib import Path

from environments import ROOT, Failure, make_environment, project, run, uv

PACKAGES = ("topology", "cost", "placement", "rackplan")
_NEVER = {"__pycache__", ".hypothesis"}


def main() -> None:
    """Build, look, install and try."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "-o", "--output", type=Path, help="a folder for both files, instead of those that are there"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rackplan-wheel-") as name:
        folder = Path(name)
        with timed("built twice, the same bytes"):
            sdist, wheel = build(folder)
        with timed("has every file of the packages, licences and tests"):
            look(sdist, wheel)
        with timed("installed in an environment of its own"):
            python = make_environment(folder / "environment", wheel)
            uv("pip", "check", "--quiet", "--python", python)
        with timed("tried there"):
            try_out(python, folder)
        if given.output:
            given.output.mkdir(parents=True, exist_ok=True)
            for old in (*given.output.glob("rackplan-*.whl"), *given.output.glob("rackplan-*.tar.gz")):
                old.unlink()
        for file in (sdist, wheel):
            print(f"  {sha256(file.read_bytes()).hexdigest()}  {file.name}")
            if given.output:
                shutil.copyfile(file, given.output / file.name)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what was done and how long it took."""
    begun = time.perf_counter()
    yield
    print(f"wheel: {what} ({time.perf_counter() - begun:.1f} s)", flush=True)


def build(folder: Path) -> tuple[Path, Path]:
    """Build the source distribution, the wheel of it, and the wheel of the checkout.

    Raises
    ------
    Failure
        If the wheels differ.
    """
    first, second = folder / "first", folder / "second"
    how = ("build", "--quiet", "--python", sys.executable, "--out-dir")
    uv(*how, first)
    uv(*how, second, "--wheel", TZ="Asia/Tokyo", LC_ALL="C")
    (sdist,), (wheel,), (other,) = first.glob("*.tar.gz"), first.glob("*.whl"), second.glob("*.whl")
    if wheel.read_bytes() != other.read_bytes():
        raise Failure(
            f"the wheel of the source distribution is not that of the checkout: {differing(wheel, other)}"
        )
    return sdist, wheel


def differing(first: Path, second: Path) -> str:
    """Return the names of the members that differ."""
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        left = {info.filename: (info.CRC, info.date_time, info.external_attr) for info in one.infolist()}
        right = {info.filename: (info.CRC, info.date_time, info.external_attr) for info in other.infolist()}
    return (
        ", ".join(sorted(name for name in {*left, *right} if left.get(name) != right.get(name)))
        or "their order"
    )


def look(sdist: Path, wheel: Path) -> None:
    """Hold what is in both against the checkout.

    Raises
    ------
    Failure
        If a file is missing, or one is there that should not be.
    """
    there = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if ours(path)
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        meta = next(name for name in names if name.endswith(".dist-info/METADATA"))
        text = Parser().parsestr(archive.read(meta).decode())
    inside = {name for name in names if ".dist-info/" not in name}
    if there != inside:
        raise Failure(
            f"not in the wheel: {sorted(there - inside)}; not of the packages: {sorted(inside - there)}"
        )
    wanted = {f"{package}/py.typed" for package in PACKAGES} | {
        f"{Path(meta).parent}/licenses/{name}"
        for name in ("LICENSE", "topology/fonts/LICENSE-DejaVu", "rackplan/report/static/LICENSE-plotly")
    }
    if missing := sorted(wanted - names):
        raise Failure(f"not in the wheel: {missing}")
    asked = project()
    said = (text["Name"], text["Version"], text["License-Expression"], text["Requires-Python"])
    if said != (asked["name"], asked["version"], asked["license"], asked["requires-python"]):
        raise Failure(f"the wheel says of itself {said}")
    with tarfile.open(sdist) as tar:
        files = {name.partition("/")[2] for name in tar.getnames()}
    tests = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py")}
    whole = {*inside, *tests, "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "Makefile", ".ci/run"}
    if missing := sorted(whole - files):
        raise Failure(f"not in the source distribution: {missing}")


def ours(path: Path) -> bool:
    """Whether a path is a file that is shipped."""
    return path.is_file() and not _NEVER & set(path.parts)


def try_out(python: Path, folder: Path) -> None:
    """Run what a user would, in an empty folder, with the command that was installed.

    Raises
    ------
    Failure
        If a command fails, prints or writes something else.
    """
    here = folder / "empty"
    here.mkdir()
    rackplan = python.with_name("rackplan")

    def command(line: str) -> str:
        return run(rackplan, *line.split(), cwd=here)

    require(command("--version").startswith(f"rackplan {project()['version']}\n"), "--version")
    require("plan" in command("--help"), "--help")
    command("plan --phase decode --model olmoe-1b-7b --cluster hgx-h100 --time-limit 0 -o out")
    names = {path.name for path in (here / "out").iterdir()}
    require(names == {"plan.json", "report.html", "topology.svg"}, "plan: three files")
    page = (here / "out/report.html").read_text(encoding="utf-8")
    require(
        'id="plotly"' in page and "<style>" in page and "data-id" in page,
        "plan: a page with charts and drawing",
    )
    command("draw gb200-nvl72 -o rack.svg")
    require("<svg" in (here / "rack.svg").read_text(encoding="utf-8"), "draw: SVG")
    command("sweep --model olmoe-1b-7b --cluster hgx-h100 -o sweep.html")
    require((here / "sweep.html").stat().st_size > 5e5, "sweep: a page")
    require(len(re.findall(r'"name"', command("schema --json"))) > 20, "schema: a list")
    said = run(
        python,
        "-c",
        "import rackplan; print(rackplan.plan('olmoe-1b-7b', 'hgx-h100', time_limit_s=0))",
        cwd=here,
    )
    require("olmoe-1b-7b" in said, "the library: a plan")


def require(right: object, what: str) -> None:
    """Fail where something is not so.

    Raises
    ------
    Failure
        With what was tried.
    """
    if not right:
        raise Failure(f"the installed wheel does not do what it should: {what}")


if __name__ == "__main__":
    main()
