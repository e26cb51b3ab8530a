"""Files that are cut, hostile or none at all: one line with the place, quickly, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from topology.base.errors import InputError
from topology.importers import ImportOptions, import_files

BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<system version="1"><cpu numaid="&b;"/></system>"""

FILES: list[tuple[str, bytes | str, str]] = [
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
    ("gpu.txt", "GPU0 is broken\n", "looks like `nvidia-smi topo -m`"),
    ("alias.yaml", "a: &x [1, 2]\nswitches: *x\n", "line 2: YAML aliases"),
    ("deep.json", "[" * 100_000, "nested too deeply"),
    ("cut.json", '[{"links": [{"compounded_links": [', "cut.json: column .*is the file truncated"),
    ("hosts.conf", "SwitchName=s Nodes=n[1-1000000000]\n", "line 1: hostlist .* more than 200000"),
    ("product.conf", "SwitchName=s Nodes=n[1-999][1-999][1-999]\n", "line 1: hostlist .* more than 200000"),
    (
        "escape.json",
        '{"instances": [{"id": "n1\\u0000", "network_layers": ["a"]}]}',
        r"id: 'n1\\x00' must be text without control",
    ),
    (
        "escape.xml",
        '<system><cpu><nic><net name="a&#x9b;31m" speed="1"/></nic><pci busid="0000:00:00.0"/></cpu></system>',
        r"line 1: <net> name: 'a\\x9b31m' must be text without control",
    ),
    ("turned.conf", "SwitchName=s Nodes=n\u0085[1-2]\n", "line 1: has the control character 0x85"),
    ("twice.xml", '<system version="1" version="2"/>', "line 1: column .*duplicate attribute"),
]


@pytest.mark.parametrize(("name", "content", "problem"), FILES, ids=[name for name, _, _ in FILES])
def test_one_line_with_the_place(tmp_path: Path, name: str, content: bytes | str, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=problem) as caught:
        import_files([str(path)], ImportOptions(gpu="hgx-h100"))
    assert str(caught.value).startswith(f"{name}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist or is not a file"):
        import_files([str(tmp_path / "no")], ImportOptions())
    with pytest.raises(InputError, match="does not exist or is not a file"):
        import_files([str(tmp_path)], ImportOptions())
