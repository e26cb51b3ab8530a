"""``rackplan draw`` and ``import``: a file of each kind, colours of plans and of traffic, clusters of other tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers import PLAN, Run


def flat(path: Path) -> str:
    """The text of a drawing with spaces that may break."""
    return path.read_text().replace("\u00a0", " ").replace("&#160;", " ")


@pytest.mark.parametrize(("name", "start"), [("t.svg", b"<?xml"), ("t.png", b"\x89PNG"), ("t.pdf", b"%PDF")])
def test_each_format_is_written_and_named(run: Run, name: str, start: bytes, tmp_path: Path) -> None:
    result = run("draw", "hgx-h100", "-o", name, "--json")
    assert (result.code, result.err, result.data["file"]) == (0, "", name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_plan_colours_the_gpus_and_traffic_the_links(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN)
    assert run("draw", "hgx-h100", "--plan", "plan/plan.json", "-o", "loaded.svg").code == 0
    assert "expert load" in flat(tmp_path / "loaded.svg")
    result = run("draw", "hgx-h100@16", "--traffic", "all-to-all", "-o", "t.svg")
    assert (result.code, result.err) == (0, "")
    assert "Traffic: all&#45;to&#45;all, 1 GB from each GPU" in flat(tmp_path / "t.svg")
    assert "expert load" not in flat(tmp_path / "t.svg")
    np.save(tmp_path / "m.npy", np.ones((16, 16)))
    assert run("draw", "hgx-h100@16", "--traffic", "m.npy", "-o", "m.svg").code == 0
    assert "Bottleneck (red): " in flat(tmp_path / "m.svg")


def test_without_an_output_it_is_printed_and_nothing_is_written(run: Run, tmp_path: Path) -> None:
    for more, begin in (((), "<?xml"), (("--format", "slurm"), "- topology:")):
        printed = run("draw", "hgx-h100@16", *more)
        assert (printed.code, printed.out[: len(begin)]) == (0, begin)
        assert run("draw", "hgx-h100@16", *more, "--json").data["text"] == printed.out
    assert list(tmp_path.iterdir()) == []


def test_an_imported_cluster_is_read_by_other_commands(run: Run, tmp_path: Path) -> None:
    tree = (
        "SwitchName=core Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\n"
    )
    (tmp_path / "topology.conf").write_text(tree)
    done = run("import", "topology.conf", "--gpu", "hgx-h100", "-o", "c.yaml")
    assert done.code == 0
    for words in ("32 GPUs (h100-sxm) in 4 hosts", "No part is irregular", "catalog system hgx-h100"):
        assert words in done.out
    assert "Hosts in order (d0.n0, d0.n1, ...): n[1-4]" in (tmp_path / "c.yaml").read_text()
    assert run("draw", "c.yaml", "-o", "c.svg").code == 0
    assert run("traffic", "c.yaml").code == 0


def test_an_import_says_what_was_read_given_assumed_and_not_used(run: Run, tmp_path: Path) -> None:
    matrix = "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tPIX\nGPU1\tNV18\t X \tNODE\nNIC0\tPIX\tNODE\t X \n"
    (tmp_path / "topo.txt").write_text(matrix)
    done = run("import", "topo.txt", "--gpu", "h100-sxm", "--pcie", "64 GB/s", "-o", "c.yaml", "--json")
    (read,) = done.data["read"]
    assert (read["name"], read["file_kind"]) == ("topo.txt", "topo-m")
    assert read["file_content"] == "2 GPUs, 36 scale-up links, 1 NIC port"
    rows = [(row["remark_kind"], row["assumption"]) for row in done.data["taken"]]
    rows += [(row["remark_kind"], row["anomaly"]) for row in done.data["anomalies"]]
    assert [kind for kind, _ in rows] == ["read", "option", "assumed", "assumed", "not used", "not used"]
    told = ("18 NVLinks", "--gpu h100-sxm", "nvlink4", "4 switch chips", "1 NIC port", "--pcie 64 GB/s")
    for words, (_, text) in zip(told, rows, strict=True):
        assert words in text
    lines = (tmp_path / "c.yaml").read_text().splitlines()
    comments = " ".join(" ".join(line[1:] for line in lines if line.startswith("#")).split())
    assert "File topo.txt (topo-m): 2 GPUs, 36 scale-up links" in comments
    for kind, text in rows:
        assert f"{kind.capitalize()}: {text}" in comments


def test_several_clusters_are_drawn_to_one_scale(run: Run, tmp_path: Path) -> None:
    names = ("hgx-h100", "gb200-nvl72@144", "rubin-576")
    done = run("draw", *names, "-o", "g.svg", "--json")
    assert (done.code, done.data["cluster"], done.data["gpus"]) == (0, ", ".join(names), 8 + 144 + 576)
    text = flat(tmp_path / "g.svg").replace("&#45;", "-")
    for words in ("inside 450 GB/s per GPU", "outside 18 times slower", "one of 2 domains: GB200 NVL72"):
        assert words in text
    assert "over up to 576 GPUs" in text
    assert "hypothetical" in text
    assert run("draw", *names).out.startswith("<?xml")
    for more in (("--level", "gpu"), ("--traffic", "ring"), ("-o", "g.csv"), ("--format", "slurm")):
        refused = run("draw", *names, *more)
        assert refused.code == 2
        assert "one domain of each" in refused.err
