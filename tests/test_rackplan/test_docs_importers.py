"""Every example of docs/importers.md is run as it is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = (Path(__file__).parents[2] / "docs" / "importers.md").read_text()
FILES = dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```$', TEXT, re.DOTALL | re.MULTILINE))
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


@pytest.mark.parametrize("command", COMMANDS)
def test_example(run: Callable[..., Any], tmp_path: Path, command: str) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    program, *arguments = shlex.split(command)
    assert program == "rackplan"
    done = run(*arguments)
    assert done.code == 0, done.err
    assert "Wrote" in done.out or arguments[0] == "draw"


def test_what_the_page_says_of_a_gpu_without_links(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "nccl.xml").write_text(FILES["nccl.xml"])
    done = run("import", "nccl.xml", "--gpu", "h100-sxm", "-o", "host.yaml")
    assert "GPU1 (0000:2d:00.0) has no scale-up link, other GPUs 18" in " ".join(done.out.split())
    assert "GPU1 (0000:2d:00.0) has no scale-up link, other GPUs 18" in TEXT


def test_every_kind_is_on_the_page() -> None:
    from topology.importers import KINDS

    assert all(f"`{kind}`" in TEXT for kind in KINDS)
    assert len(COMMANDS) >= len(KINDS)


def test_every_format_of_export_is_on_the_page() -> None:
    from topology.exporters import EXPORT_FORMATS, GRAPH_SUFFIXES

    assert all(f"`{form}`" in TEXT for form in (*EXPORT_FORMATS, *GRAPH_SUFFIXES))
