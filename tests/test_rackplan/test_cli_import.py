"""``rackplan import``: files in, a cluster YAML that the other commands take out, and a summary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

TREE = "SwitchName=core Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "topology.conf"
    path.write_text(TREE)
    return path


def test_writes_a_cluster_that_other_commands_read(
    run: Callable[..., object], tree: Path, tmp_path: Path
) -> None:
    done = run("import", tree, "--gpu", "hgx-h100", "-o", "c.yaml")
    assert done.code == 0
    for words in (
        "32 GPUs (h100-sxm) in 4 hosts",
        "No irregular parts",
        "catalog system hgx-h100",
    ):
        assert words in done.out
    assert all(len(line) <= 100 for line in done.out.splitlines())
    assert "Hosts in order (d0.n0, d0.n1, ...): n[1-4]" in (tmp_path / "c.yaml").read_text()
    assert run("draw", "c.yaml", "-o", "c.svg").code == 0
    assert run("traffic", "c.yaml").code == 0


def test_without_an_output_the_file_is_printed(
    run: Callable[..., object], tree: Path, tmp_path: Path
) -> None:
    asked = ("import", tree, "--gpu", "hgx-h100")
    assert run(*asked, "-o", "c.yaml").code == 0
    assert run(*asked).out == run(*asked, "--json").data["text"] == (tmp_path / "c.yaml").read_text()


def test_what_is_missing_is_asked_for_in_one_line(
    run: Callable[..., object], tree: Path, tmp_path: Path
) -> None:
    failed = run("import", tree, "-o", "c.yaml")
    assert failed.code == 2
    for option in ("--gpu", "--gpus-per-node", "--nic", "--oversubscription"):
        assert option in failed.error_line
    assert not (tmp_path / "c.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "c.json"], "must end in .yaml"),
        (["-o", "no/c.yaml", "--gpu", "hgx-h100"], "cannot write there"),
        (["-o", "c.yaml", "--gpu", "hgx-h100", "--from", "word"], "not one of topo-m, nccl-xml"),
        (["-o", "c.yaml", "--gpu", "hgx-h100", "--oversubscription", "-1"], "--oversubscription"),
        (["-o", "c.yaml", "--gpu", "hgx-h100", "--domains", "rack"], "--domains rack: leaf or node"),
    ],
)
def test_options_that_cannot_be(
    run: Callable[..., object], tree: Path, arguments: list[str], words: str
) -> None:
    failed = run("import", tree, *arguments)
    assert failed.code == 2
    assert words in failed.error_line
