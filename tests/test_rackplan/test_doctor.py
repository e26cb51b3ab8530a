"""What ``rackplan doctor`` finds, here and in installations that are broken on purpose."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import rackplan
from rackplan import __main__ as start
from rackplan.doctor import examine, installed
from rackplan.doctor.examine import REMEDIES, Failed, extra_state
from rackplan.doctor.installed import DEVELOPMENT, Check, Package, own_files, requirements
from rackplan.render.text import text_lines
from rackplan.views.doctor import doctor_view
from schema_check import require_schema

ROOT = Path(__file__).parents[2]
ASKED = [
    "numpy>=2.0",
    "typer[all]>=0.15 ; python_version > '3'",
    "winshell>=1 ; sys_platform == 'win32'",
    'starlette>=9; extra == "serve"',
    'uvicorn>=1; extra == "serve"',
    "ray>=2; extra == 'cluster'",
    "rackplan[serve]; extra == 'cluster'",
    "mypy==2; extra == 'dev'",
]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions that are installed, in a made-up record, where every part answers."""
    known = {"numpy": "2.1", "typer": "0.9", "ray": "2.9", "rackplan": "7.8"}

    def version(name: str) -> str:
        if name not in known:
            raise metadata.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(installed, "_PROJECT", Path("no-checkout"))
    monkeypatch.setattr(metadata, "requires", lambda _: ASKED)
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(examine, "_tried", lambda names: dict.fromkeys(names, "works"))
    monkeypatch.setattr(examine, "own_files", lambda: Check("files", "ok", "all"))
    return known


def test_this_machine_lacks_nothing(run: Callable[..., Any]) -> None:
    result = run("doctor", "--json")
    assert result.code == 0
    found = result.data
    assert (found["usable"], found["missing"]) == (True, [])
    checks = {check["name"]: check["state"] for check in found["checks"]}
    assert list(checks) == ["files", *REMEDIES, "output"]
    assert set(checks.values()) == {"ok"}
    assert {"numpy", "ortools", "pygraphviz"} <= {package["name"] for package in found["packages"]}
    assert {"serve", "dev"} <= {extra["name"] for extra in found["extras"]}


def test_what_is_missing_is_said_with_what_to_do(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    def tried(names: list[str]) -> dict[str, str]:
        return {name: Failed("Error: no") if name == "drawings" else "works" for name in names}

    monkeypatch.setattr(examine, "_tried", tried)
    found = examine.examine()
    assert [(one.name, one.state) for one in found.packages] == [("numpy", "ok"), ("typer", "out of range")]
    assert found.missing == [
        'typer>=0.15: out of range (there is 0.9); pip install "typer>=0.15"',
        "drawings: Error: no; pip install --force-reinstall pygraphviz",
    ]
    result = run("doctor")
    assert result.code == 1
    assert "Missing       typer>=0.15: out of range" in result.out
    assert "serve: not installed; starlette >=9, uvicorn >=1; pip install" in result.out
    assert "mypy" not in result.out
    require_schema("doctor", doctor_view(found).data)  # type: ignore[arg-type]


def test_an_extra_brings_another_one(versions: dict[str, str]) -> None:
    needed, extras = requirements()
    assert [one.name for one in needed] == ["numpy", "typer"]
    assert {name: [one.name for one in some] for name, some in extras.items()} == {
        "cluster": ["starlette", "uvicorn", "ray"],
        "serve": ["starlette", "uvicorn"],
        "dev": ["mypy"],
    }
    assert [extra_state(some) for some in extras.values()] == ["missing", "not installed", "not installed"]


def test_what_a_lost_package_takes_with_it_is_no_fault_of_its_own(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examine, "_tried", lambda names: dict.fromkeys(names, Failed("no 'numpy'")))
    del versions["typer"]
    found = examine.examine()
    assert [(one.state, one.reason) for one in found.packages] == [("broken", "no 'numpy'"), ("missing", "")]
    states = {check.name: check.text for check in found.checks if check.state == "not checked"}
    assert set(states) == set(REMEDIES) - {"folders"}
    assert set(states.values()) == {"does not work without numpy, typer, a folder for temporary files"}
    assert "set TMPDIR" in found.missing[-1]
    assert (
        extra_state([Package("a", "", None, "x", "missing"), Package("b", "", "1", "x", "broken")])
        == "broken"
    )


def test_without_packaging_versions_are_not_compared(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "packaging.specifiers", None)
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    needed, extras = requirements()
    assert [(one.name, one.asked, one.state) for one in needed] == [
        ("numpy", ">=2.0", "not checked"),
        ("typer", ">=0.15", "not checked"),
        ("winshell", ">=1", "missing"),
    ]
    assert set(extras) == {"serve", "cluster", "dev"}


def test_a_part_that_ends_its_process_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(examine, "LIMIT_S", 20)
    modules = {
        "killed": "import os\nos.kill(os.getpid(), 9)",
        "leaves": "print('{}')\nprint('[1]', flush=True)\nraise SystemExit(7)",
        "odd": "raise ValueError('a\\n\\x1b[31mb')",
        "fine": "print('hello')",
    }
    for name, code in modules.items():
        (tmp_path / f"{name}.py").write_text(code)
    for name in (*modules, "nowhere"):
        (tmp_path / f"{name}-1.dist-info").mkdir()
        (tmp_path / f"{name}-1.dist-info/METADATA").write_text(f"Name: {name}\nVersion: 1\n")
    found = examine._tried([f"import {name}" for name in (*modules, "nowhere")])
    assert found == {
        "import killed": "its process was ended by signal SIGKILL",
        "import leaves": "its process ended with exit code 7",
        "import odd": "ValueError: a \\x1b[31mb",
        "import fine": "fine",
        "import nowhere": "ModuleNotFoundError: No module named 'nowhere'",
    }
    assert [isinstance(said, Failed) for said in found.values()] == [True, True, True, False, True]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    assert examine._tried(["solver"]) == {"solver": "no process can be started: No such file or directory"}


def test_our_own_files_are_held_against_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "rackplan-1.dist-info"
    record.mkdir()
    (tmp_path / "rackplan").mkdir()
    (tmp_path / "rackplan/__main__.py").write_bytes(b"whole")
    digest = "XVdmzy14cBYUIAQY7hRQaQ2a8SyE1SVF5IAvABrVMJk"
    lines = [
        f"rackplan/__main__.py,sha256={digest},5",
        "rackplan/gone.pyc,,",
        "../../bin/rackplan,sha256=x,1",
    ]
    (record / "RECORD").write_text("\n".join(lines))
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: rackplan\nVersion: 1\n")
    (record / "direct_url.json").write_text('{"url": "file:///a%20b", "dir_info": {"editable": true}}')
    of = metadata.Distribution.at(record)
    monkeypatch.setattr(metadata, "distribution", lambda _: of)
    right = own_files()
    (tmp_path / "rackplan/__main__.py").write_bytes(b"wrong")
    changed = own_files()
    (tmp_path / "rackplan/__main__.py").unlink()
    assert (
        own_files()
        == changed
        == Check(
            "files",
            "broken",
            "1 of 3 files are missing or changed: rackplan/__main__.py",
            'pip install --force-reinstall --no-deps -e "/a b"',
        )
    )
    assert right == Check("files", "ok", "3 files, as they were installed")
    assert installed.install("study") == '-e "/a b[study]"'
    (record / "direct_url.json").write_text('{"url": "https://host/rackplan-1.whl"}')
    assert installed.install("study") == '"rackplan[study] @ https://host/rackplan-1.whl"'
    (record / "direct_url.json").write_text("{{")
    assert installed.install("study") == '"rackplan[study]"'


@pytest.mark.parametrize("words", [["doctor"], ["doctor", "--json"], ["plan"]])
def test_without_typer_the_doctor_still_answers(
    words: list[str],
    versions: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "rackplan.cli", None)
    monkeypatch.setattr(sys, "argv", ["rackplan", *words])
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            start.main()
    finally:
        signal.signal(signal.SIGINT, before)  # a process that ends ignores it
    out, err = capsys.readouterr()
    assert ended.value.code == 1
    if words == ["plan"]:
        assert out == ""
        assert err.endswith("; rackplan doctor says what is missing.\n")
        assert err.count("\n") == 1
    elif "--json" in words:
        require_schema("doctor", json.loads(out))
    else:
        assert "Needed:\n" in out


def test_the_doctor_needs_python_alone_to_start() -> None:
    code = (
        "import sys; before = set(sys.modules); import rackplan.__main__, rackplan.doctor.examine, "
        "rackplan.views.doctor, rackplan.output; print({m.partition('.')[0] for m in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names))"
    )
    said = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert eval(said.stdout) == {"rackplan", "topology"}  # noqa: S307 - a set that was printed


def test_the_project_says_one_version_and_the_extras_that_the_doctor_knows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == rackplan.__version__
    assert set(DEVELOPMENT) < set(project["optional-dependencies"])


def test_the_view_fits_eighty_columns_and_ascii(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = list(text_lines(doctor_view(examine.examine()).blocks))
    assert max(map(len, lines)) <= 80
    assert all(line.isascii() for line in lines)
