"""Run the tests with the oldest and with the newest versions of the dependencies that pyproject.toml allows.

    python tools/versions.py [oldest] [newest] [--python 3.11 3.13] [-- PYTEST ARGUMENTS]

`make versions` runs both. Each gets an environment of its own, with all extras of users but `ray`, and the newest
tools for testing. Oldest: of what pyproject.toml asks for by name the lowest that it allows and that has a wheel for
the Python, of what these ask for the newest that they allow. Without arguments for pytest: what `make test` runs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from environments import ROOT, USED, clean, make_environment, project, run, uv
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

RESOLUTION = {"oldest": "lowest-direct", "newest": "highest"}
EXTRAS = tuple(name for name in USED if name != "ray")
TOOLS = ("duckdb", "httpx", "hypothesis", "pytest>=9", "pytest-xdist", "safetensors")
QUICK = ("-m", "not wide and not browser", "-n", "auto", "--dist", "worksteal")


def main() -> None:
    """Resolve, install and test; the exit code is 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", nargs="*", choices=[*RESOLUTION, []], help="oldest, newest; default: both")
    parser.add_argument(
        "--python", nargs="+", default=[sys.executable], help="versions or paths; default: this one"
    )
    words = sys.argv[1:]
    own, tests = (
        (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    )
    given = parser.parse_args(own)
    failed = False
    for python in given.python:
        for which in given.which or RESOLUTION:
            failed |= not tested(which, python, tests or list(QUICK))
    raise SystemExit(int(failed))


def tested(which: str, python: str, tests: list[str]) -> bool:
    """Test with one set of versions; say which, how long it took and whether all passed."""
    with tempfile.TemporaryDirectory(prefix=f"rackplan-{which}-") as name:
        made = make_environment(Path(name) / "environment", python=python)
        extras = [word for extra in EXTRAS for word in ("--extra", extra)]
        pins = Path(name) / "pins.txt"
        how = ("--quiet", "--no-annotate", "--no-header", "--only-binary", ":all:")
        resolution = ("--resolution", RESOLUTION[which], "--python", made)
        uv("pip", "compile", *how, *resolution, *extras, "pyproject.toml", "-o", pins)
        uv("pip", "install", "--quiet", "--python", made, "-r", pins, *TOOLS)
        uv("pip", "install", "--quiet", "--python", made, "--no-deps", "--editable", ROOT)
        said = f"{which}, {run(made, '--version').strip()}"
        print(f"{said}: {', '.join(direct(pins.read_text(encoding='utf-8')))}", flush=True)
        begun = time.perf_counter()
        words = [made, "-m", "pytest", "-p", "no:cacheprovider", *tests]
        passed = subprocess.run(words, cwd=ROOT, env=clean(), check=False).returncode == 0
        print(f"{said}: {'passed' if passed else 'FAILED'}, {time.perf_counter() - begun:.0f} s", flush=True)
        return passed


def direct(pins: str) -> list[str]:
    """Return the pins of the packages that pyproject.toml asks for by name."""
    extras = project()["optional-dependencies"]
    asked = [*project()["dependencies"], *(one for extra in EXTRAS for one in extras[extra])]
    names = {canonicalize_name(Requirement(text).name) for text in asked}
    found = re.findall(r"^(\S+)==(\S+)", pins, flags=re.MULTILINE)
    return [f"{name} {version}" for name, version in found if canonicalize_name(name) in names]


if __name__ == "__main__":
    main()
