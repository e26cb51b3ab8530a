"""Look at an installation and try its parts.

Each part is tried in a process of its own (:mod:`rackplan.doctor.probes`), so that a package that cannot be imported,
or that ends the process, is one of the answers.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackplan.doctor.installed import (
    DEVELOPMENT,
    HOME,
    NAME,
    REINSTALL,
    Check,
    Package,
    State,
    own_files,
    requirements,
    version_of,
)
from topology.errors import printable
from topology.host import cores

ENGINES = ("vllm", "sglang", "tensorrt-llm", "vllm-ascend", "torch")
"""Packages beside which the balancers and the readers of recordings work; none of them is needed."""
REMEDIES = {
    "solver": f"{REINSTALL} ortools",
    "drawings": f"{REINSTALL} pygraphviz",
    "pages": f"{REINSTALL} plotly",
    "catalog": f"{REINSTALL} --no-deps {NAME}",
    "folders": "set TMPDIR to a folder that can be written",
}
"""Parts that are tried (each a function of :mod:`rackplan.doctor.probes`), and what to do where one is broken."""
LIMIT_S = 120
"""Seconds after which a part that does not answer counts as broken."""
_VARIABLES = (
    "COLUMNS", "NO_COLOR", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "PYTHONHASHSEED", "SOURCE_DATE_EPOCH",
)  # fmt: skip


@dataclass(frozen=True)
class Installation:
    """What :func:`examine` found; :class:`rackplan.schemas.doctor.DoctorPrinted` says what each of it means."""

    version: str
    source: str
    python: str
    executable: str
    system: str
    cores: int
    packages: tuple[Package, ...]
    extras: Mapping[str, tuple[Package, ...]]
    engines: Mapping[str, str]
    checks: tuple[Check, ...]
    variables: Mapping[str, str]

    @property
    def missing(self) -> list[str]:
        """What is missing or broken of what is always needed, each with what to do; nothing of extras."""
        return [
            *(_said(package) for package in self.packages if package.state not in ("ok", "not checked")),
            *(
                f"{check.name}: {check.text.rstrip('.')}; {check.remedy}"
                for check in self.checks
                if check.state == "broken"
            ),
        ]


def extra_state(packages: Sequence[Package]) -> State:
    """Return the state of an extra: of what is worst of its packages, or that it has none of them."""
    if all(package.state == "missing" for package in packages):
        return "not installed"
    order: tuple[State, ...] = ("broken", "out of range", "missing", "not checked")
    states = {package.state for package in packages}
    return next((state for state in order if state in states), "ok")


def examine() -> Installation:
    """Look at this installation and try its parts; nothing is changed but for files in the temporary folder."""
    needed, extras = requirements()
    usable = [one for name, some in extras.items() for one in some if name not in DEVELOPMENT]
    names = dict.fromkeys(one.name for one in (*needed, *usable) if one.version is not None)
    found = _tried([*(f"import {name}" for name in names), *REMEDIES])

    def imported(package: Package) -> Package:
        tried = found.get(f"import {package.name}", "")
        return replace(package, state="broken", reason=tried) if isinstance(tried, Failed) else package

    packages = tuple(map(imported, needed))
    lost = [one.name for one in packages if one.state in ("missing", "broken")]
    if isinstance(found["folders"], Failed):
        lost.append("a folder for temporary files")
    code = own_files()
    checks = (code, *(_check(name, found[name], lost, code.remedy) for name in REMEDIES), _output())
    return Installation(
        version_of(NAME) or _version_of_source(),
        str(HOME),
        f"{platform.python_implementation()} {platform.python_version()}",
        sys.executable or "unknown",
        f"{platform.system()} {platform.release()} {platform.machine()}",
        cores(),
        packages,
        {name: tuple(map(imported, some)) for name, some in extras.items()},
        {name: version for name in ENGINES if (version := version_of(name)) is not None},
        checks,
        {
            name: printable(value)
            for name, value in sorted(os.environ.items())
            if name in _VARIABLES or name.startswith("RACKPLAN_")
        },
    )


class Failed(str):
    """Why something failed."""

    __slots__ = ()


def _check(name: str, found: str, lost: Sequence[str], remedy: str) -> Check:
    if not isinstance(found, Failed):
        return Check(name, "ok", found)
    if lost and name != "folders":
        return Check(name, "not checked", f"does not work without {', '.join(lost)}")
    return Check(name, "broken", found, remedy or REMEDIES[name])


def _said(package: Package) -> str:
    """Return what is wrong with a package that is needed, and what to do."""
    wanted = f"{package.name}{package.asked}"
    command = REINSTALL if package.state == "broken" else "pip install"
    has = f" (there is {package.version})" if package.state == "out of range" else ""
    why = f" ({package.reason})" if package.reason else ""
    return f'{wanted}: {package.state}{has}{why}; {command} "{wanted}"'


def _version_of_source() -> str:
    import rackplan

    return rackplan.__version__


def _output() -> Check:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "▁█·×".encode(encoding)
        letters = ""
    except (UnicodeEncodeError, LookupError):
        letters = "; signs that it lacks are replaced (PYTHONIOENCODING=utf-8 shows them)"
    return Check("output", "ok", f"{encoding}, {'a terminal' if _is_terminal() else 'no terminal'}{letters}")


def _is_terminal() -> bool:
    try:
        return sys.stdout.isatty()
    except (AttributeError, ValueError):
        return False


def _tried(names: Sequence[str]) -> dict[str, str]:
    """Return what each probe said, or a :class:`Failed`; one that ends its process takes no other with it."""
    found: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        answers, end = _answers(waiting)
        found |= answers
        waiting = [name for name in waiting if name not in answers]
        if waiting:
            found[waiting.pop(0)] = Failed(end)
    return found


_CHILD = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from rackplan.doctor.probes import main; main()"
)


def _answers(names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return what a process said of ``names``, in order, as far as it came, and how it ended."""
    command = [sys.executable or "python3", "-P", "-c", _CHILD, json.dumps(sys.path), *names]
    try:
        with tempfile.TemporaryFile() as errors:
            said, end = _run(command, errors)
    except OSError:  # no folder for temporary files
        said, end = _run(command, subprocess.DEVNULL)
    answers: dict[str, str] = {}
    for line in _objects(said):
        name, text = str(line.get("name")), printable(str(line.get("text")))
        answers[name] = text if line.get("ok") else Failed(text)
    return answers, end


def _objects(text: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of lines; others are what libraries print."""
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def _run(command: Sequence[str], errors: Any) -> tuple[bytes, str]:
    """Return what a process printed, and how it ended."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    try:
        process = subprocess.run(  # noqa: S603 - this Python
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=LIMIT_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return error.stdout or b"", f"no answer in {LIMIT_S} s"
    except OSError as error:
        return b"", f"no process can be started: {error.strerror}"
    code = process.returncode
    if code >= 0:
        return process.stdout, f"its process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return process.stdout, f"its process was ended by signal {name}"
