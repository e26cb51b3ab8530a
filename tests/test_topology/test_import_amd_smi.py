"""``amd-smi topology`` and ``rocm-smi --showtopo``: an MI3xx host, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topology import InputError, load_domain
from topology.importers import ImportOptions, import_files

NAMES = [f"0000:{number:02x}:00.0" for number in range(8)]


def table(title: str, other: str, names: list[str]) -> str:
    rows = [[name, *("SELF" if name == one else other for one in names)] for name in names]
    return "\n".join([title, *("  ".join(row) for row in [["", *names], *rows])]) + "\n\n"


AMD_SMI = table("WEIGHT TABLE:", "15", NAMES) + table("LINK TYPE TABLE:", "XGMI", NAMES)
ROCM_SMI = table("=== Hops between two GPUs ===", "1", [f"GPU{i}" for i in range(8)]) + table(
    "=== Link Type between two GPUs ===", "XGMI", [f"GPU{i}" for i in range(8)]
)
JSON = json.dumps(
    [
        {
            "gpu": a,
            "bdf": NAMES[a],
            "links": [{"gpu": b, "link_type": "SELF" if a == b else "XGMI"} for b in range(8)],
        }
        for a in range(8)
    ]
)


@pytest.mark.parametrize("text", [AMD_SMI, ROCM_SMI, JSON], ids=["amd-smi", "rocm-smi", "json"])
def test_a_host_is_the_catalogs_system(text: str, tmp_path: Path) -> None:
    (tmp_path / "node.txt").write_text(text)
    imported = import_files([str(tmp_path / "node.txt")], ImportOptions(gpu="mi300x"))
    assert imported.files[0].kind == "amd-smi"
    assert imported.spec.domains == (load_domain("mi300x"),)


@pytest.mark.parametrize(
    "text",
    [
        AMD_SMI[:-100],
        AMD_SMI.replace("SELF", "", 9),
        AMD_SMI.replace("XGMI", "PCIE", 1),
        AMD_SMI.replace(NAMES[1], NAMES[0]),
        table("WEIGHT TABLE:", "15", NAMES),
        table("LINK TYPE TABLE:", "XGMI", ["node0"]),
        JSON.replace('"gpu": 1,', '"gpu": 70,', 1),
        JSON.replace("XGMI", "PCIE", 1),
        JSON.replace(NAMES[1], NAMES[0]),
    ],
)
def test_what_is_cut_or_no_mesh_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "node.txt").write_text(text)
    with pytest.raises(InputError, match=r"node\.txt"):
        import_files([str(tmp_path / "node.txt")], ImportOptions(gpu="mi300x", pcie="32 GB/s"))
