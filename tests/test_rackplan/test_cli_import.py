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
        "No part is irregular",
        "catalog system hgx-h100",
    ):
        assert words in done.out
    assert all(len(line) <= 100 for line in done.out.splitlines())
    assert "Hosts in order (d0.n0, d0.n1, ...): n[1-4]" in (tmp_path / "c.yaml").read_text()
    assert run("draw", "c.yaml", "-o", "c.svg").code == 0
    assert run("traffic", "c.yaml").code == 0


def test_what_is_missing_is_asked_for_in_one_line(
    run: Callable[..., object], tree: Path, tmp_path: Path
) -> None:
    failed = run("import", tree, "-o", "c.yaml")
    assert failed.code == 2
    for option in ("--gpu", "--gpus-per-node", "--nic", "--oversubscription"):
        assert option in failed.error_line
    assert not (tmp_path / "c.yaml").exists()
