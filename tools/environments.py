"""Environments for a check, made and filled by uv (extra ``release``), apart from the one that runs this."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
USED = ("serve", "study", "ray", "tune")
"""Extras of those who use rackplan."""


class Failure(SystemExit):
    """A check that failed: one line on standard error, exit code 1."""


def project() -> dict[str, Any]:
    """Return the table ``project`` of ``pyproject.toml``."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def clean() -> dict[str, str]:
    """Return the environment variables without those that change which Python or which packages are taken."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "UV_PYTHON")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def run(*words: str | Path, cwd: Path = ROOT, codes: Sequence[int] = (0,), **variables: str) -> str:
    """Run a command and return what it prints.

    Raises
    ------
    Failure
        If it ends with another exit code than one of ``codes``; with all that it said.
    """
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**clean(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in codes:
        line = " ".join(map(str, words))
        raise Failure(f"{line}\nended with exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def uv(*words: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Run uv, of this environment or of the path, and return what it prints.

    Raises
    ------
    Failure
        If there is none, or it fails.
    """
    found = [sys.executable, "-m", "uv"] if find_spec("uv") else [shutil.which("uv") or ""]
    if not found[0]:
        raise Failure("uv is not here: pip install -e '.[release]'")
    return run(*found, *words, cwd=cwd, **variables)


def make_environment(folder: Path, *requirements: str | Path, python: str = sys.executable) -> Path:
    """Make a virtual environment with these requirements; return its Python."""
    uv("venv", "--quiet", "--clear", "--python", python, folder)
    made = folder / "bin" / "python"
    if requirements:
        uv("pip", "install", "--quiet", "--python", made, *requirements)
    return made
