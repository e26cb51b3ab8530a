"""Files that are cut, damaged, hostile or none at all: one line with the place, quickly, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import script
from topology.base.errors import InputError
from topology.importers import ImportOptions, import_files
from topology.importers.hostlist import expand_hosts
from toys import topo_m

seeds = script("tests/properties/readers.py", "reader_seeds")
NCCL, AMD_JSON = seeds.NCCL.decode(), seeds.AMD_SMI[1].decode()
IB, PORTS = seeds.IB.decode(), seeds.IB_PORTS.decode()
TREE, YAML, MODEL = seeds.SLURM[0].decode(), seeds.SLURM_YAML.decode(), seeds.TOPOGRAPH[0].decode()
TABLE = topo_m([f"GPU{i}" for i in range(4)], {(i, j): "NV4" for i in range(4) for j in range(i + 1, 4)})
HALVES = topo_m(
    [f"GPU{i}" for i in range(8)],
    {(i + at, j + at): "NV18" for i in range(4) for j in range(i + 1, 4) for at in (0, 4)},
)
CSV = "a,b,count,rate\nh0.g0,h0.s0,18,25 GB/s\nh0.g1,h0.s0,18,25 GB/s\n"
BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<system version="1"><cpu numaid="&b;"/></system>"""

HOSTILE: list[tuple[str, bytes | str, str]] = [
    ("bomb.xml", BOMB, r"bomb\.xml: line 2: a document type or entity"),
    (
        "deep.xml",
        "<system>" + '<pci busid="0000:00:00.0">' * 5000,
        "line 1: elements are nested more than 64",
    ),
    ("other.xml", "<html><body/></html>", "<html> is not an NCCL topology"),
    ("cluster.yaml", "name: x\ndomains: [{part: hgx-h100}]\n", "already a cluster YAML"),
    ("nul.txt", b"\tGPU0\tGPU1\nGPU0\t X \x00NV2\n", "line 2: has the control character 0x00"),
    ("wide.txt", "\tGPU0\n".encode("utf-16"), "UTF-16"),
    ("latin.conf", b"SwitchName=s Nodes=n1\n# caf\xe9\n", "line 2: byte 0xe9 is not UTF-8"),
    ("empty", "", "is empty"),
    ("words.txt", "the quick brown fox\n", "is none of the supported kinds"),
    ("alias.yaml", "a: &x [1, 2]\nswitches: *x\n", "line 2: YAML aliases"),
    ("deep.json", "[" * 100_000, "nested too deeply"),
    ("cut.json", '[{"links": [{"compounded_links": [', "cut.json: column .*is the file truncated"),
    ("hosts.conf", "SwitchName=s Nodes=n[1-1000000000]\n", "line 1: hostlist .* more than 200000"),
    ("escape.json", '{"instances": [{"id": "n1\\u0000", "network_layers": ["a"]}]}', "without control"),
    ("turned.conf", "SwitchName=s Nodes=n\u0085[1-2]\n", "line 1: has the control character 0x85"),
]
DAMAGED: list[tuple[str, str, str]] = [
    # nvidia-smi topo -m
    ("m.txt", "\n".join(TABLE.split("\n")[:3]), "line 3: .*GPU2 to GPU3, without rows"),
    (
        "m.txt",
        TABLE.replace("NV4", "NV2", 1),
        r"line 2: row GPU0, column GPU1 is NV2, but .* \(line 3\) is NV4",
    ),
    ("m.txt", TABLE.replace("GPU3\tNV4", "GPU9\tNV4"), "line 5: row GPU9 is not a column of line 1"),
    ("m.txt", TABLE.replace("NV4\t", "NV4\tNV4\t", 1), "line 2: row GPU0 has 5 of the 4 cells"),
    ("m.txt", TABLE.replace("\nGPU3", "\n" + TABLE.split("\n")[1] + "\nGPU3"), "line 5: duplicate row GPU0"),
    ("m.txt", TABLE.replace(" X ", "NV4", 1), "line 2: .*X is only allowed on the diagonal"),
    (
        "m.txt",
        topo_m(["GPU0", "GPU1", "NIC0"], {(0, 2): "NV4"}),
        r"line \d: .* is NV4; NVLinks join two GPUs",
    ),
    ("m.txt", topo_m(["GPU0", "GPU1"], {}, legend="\n  NIC7: mlx5_7\n"), "no column NIC7 of the legend"),
    ("m.txt", HALVES, "a GPU has 54 NVLinks in all, more than the 18 of any without"),
    # NCCL
    ("n.xml", NCCL[: len(NCCL) // 2], "is not closed"),
    ("n.xml", NCCL.replace('<gpu dev="1"', '<gpu dev="0"'), 'duplicate <gpu dev="0">'),
    ("n.xml", NCCL.replace('count="18"', 'count="-5"', 1), "must be a whole number"),
    ("n.xml", NCCL.replace("0000:1a:00.0", "nowhere", 1), "is not a PCI bus id"),
    (
        "n.xml",
        NCCL.replace("0000:1a:00.0", "0000:77:00.0", 1).replace("0x068000", "0x030200", 1),
        "not in the file",
    ),
    ("n.xml", '<graphs version="1"><graph id="0"/></graphs>', "is an NCCL graph"),
    # amd-smi
    ("a.json", AMD_JSON.replace('"gpu": 1,', '"gpu": 70,', 1), "link type None and 'XGMI'"),
    ("a.json", AMD_JSON.replace("0000:26", "0000:05"), "must name at most 64 GPUs, each once"),
    # ibnetdiscover, and its list of ports
    ("ib.out", IB[: len(IB) * 2 // 3], "line 10: has no width and speed like 4xNDR; is the line truncated"),
    ("ib.out", IB.replace(" 4xNDR", " 4xHDR", 1), "runs at 4xHDR, but at 4xNDR in line"),
    ("ib.out", IB.replace("[2]\t", "[99]\t", 1), "port 99 of a device with 65 ports"),
    ("ib.out", PORTS[:-30], "is no line of `ibnetdiscover -p`; is it truncated"),
    ("ib.out", PORTS.split("\n", 1)[0], "which is not described; is the file truncated"),
    ("ib.out", PORTS.replace("4x NDR", "4x HDR", 1), "runs at 4x[HN]DR, but at 4x[HN]DR in line"),
    ("ib.out", PORTS.replace(" 1  2 ", " 1  1 ", 1), r"line 2: duplicate port 1 \(first in line 1\)"),
    # Slurm
    ("t.conf", TREE.replace("leaf[1-2]", "leaf[1-3]"), "line 1: .*child leaf3, which is not defined"),
    ("t.conf", TREE + "SwitchName=leaf9\n", "line 4: .*neither Nodes nor Switches"),
    ("t.conf", TREE + "Nonsense here\n", "line 4: .*not KEY=VALUE"),
    ("t.conf", TREE + "SwitchName=x Nodes=a Nodes=b\n", "line 4: .*duplicate key Nodes;"),
    ("t.conf", TREE + "SwitchName=x \\", "line 4: .*the file is truncated"),
    ("t.conf", "SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "line 2: .*a cycle"),
    (
        "b.conf",
        "BlockName=b Nodes=n[1-2]\nBlockName=c Nodes=n[2-3]\n",
        "line 2: host n2 is in block c, but also in b",
    ),
    (
        "t.yaml",
        YAML.replace("true", "false") + YAML.replace("true", "false").replace(": t\n", ": u\n"),
        "and no default",
    ),
    ("t.yaml", "- topology: plain\n  cluster_default: true\n  flat: true\n", "names no hosts"),
    # topograph
    ("m.yaml", MODEL.replace("switch: b", "switch: c"), "switch c is not among"),
    ("m.yaml", MODEL.replace("n[3-4]", "n[2-4]"), r"host n2 is in m\.yaml: blocks\[0\] already"),
    ("m.yaml", MODEL.replace("[a, b]", "[core]"), r"above and below core \(a cycle\)"),
    ("m.yaml", MODEL.partition("[{switch: a")[0] + " []\n", "no hosts under a switch"),
    # CSV
    ("l.csv", CSV.replace("rate", "rate,colour"), "unknown column .colour"),
    ("l.csv", CSV + "h0.g0,h0.g0,1,25 GB/s\n", "row 4, column b: joins 'h0.g0' to itself"),
    ("l.csv", CSV + "h0.s0,h0.g0,1,25 GB/s\n", "row 4, column b: duplicate link"),
    ("l.csv", CSV + "h0.g1,l,1\n", "row 4: 3 cells"),
    ("l.csv", CSV + "h0.g1,l,1.5,25 GB/s\n", "row 4, column count: 1.5 must be"),
    ("l.csv", CSV + "h0.fan1,h0.s0,1,25 GB/s\n", "'h0.fan1': unknown part"),
    ("l.csv", "a,b,count,rate\n", "has no links"),
    ("l.csv", CSV + '"h0,1,25 GB/s\n', "not a CSV file"),
]


@pytest.mark.parametrize(("name", "content", "problem"), [*HOSTILE, *DAMAGED])
def test_one_line_with_the_place(tmp_path: Path, name: str, content: bytes | str, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    options = ImportOptions(
        gpu="mi300x" if name == "a.json" else "hgx-h100", pcie="32 GB/s", socket_link="40 GB/s"
    )
    with pytest.raises(InputError, match=problem) as caught:
        import_files([str(path)], options)
    assert str(caught.value).startswith(name.partition(".")[0])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "no", tmp_path):
        with pytest.raises(InputError, match="does not exist or is not a file"):
            import_files([str(path)], ImportOptions())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n[1-", "or are nested"),
        ("n[5-3]", "runs backwards"),
        ("n[1-9]" + "[0-9]" * 7, "more than 200000 hosts"),
        ("n" + "x" * 1000, "1,001 characters"),
        ("n[1-3],n2", "n2 twice"),
        *((text, "an empty name, a space or a control character") for text in ("a,,b", "a b", "a,b\x1b")),
        ("n[" + "9" * 60 + "]", "not a number"),
    ],
)
def test_hostlists_that_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=r"^f: line 7: ") as caught:
        expand_hosts(text, "f: line 7")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250
