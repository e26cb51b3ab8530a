"""Hostlists: brackets, zeros, ranges, and what is refused."""

from __future__ import annotations

import pytest

from topology.base.errors import InputError
from topology.importers.hostlist import compress_hosts, expand_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[001-003,020]", ["n001", "n002", "n003", "n020"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a,b[1-2],c", ["a", "b1", "b2", "c"]),
        ("n[1-2]-ib, m7", ["n1-ib", "n2-ib", "m7"]),
        ("switch.1.[9-11]", ["switch.1.9", "switch.1.10", "switch.1.11"]),
        ("n[9-10]", ["n9", "n10"]),
    ],
)
def test_expands(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text, "here") == hosts


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n[1-", "or are nested"),
        ("n[5-3]", "runs backwards"),
        ("n[1-9]" + "[0-9]" * 9, "more than"),
        ("n1,,n2", "empty name"),
        ("n[1-3],n2", "n2 twice"),
        ("n[" + "9" * 60 + "]", "not a number"),
    ],
)
def test_refuses_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=r"^f: line 7: ") as caught:
        expand_hosts(text, "f: line 7")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_compress_is_short() -> None:
    assert compress_hosts([f"n{i:03d}" for i in range(1, 101)]) == "n[001-100]"
    assert compress_hosts(["n1", "n2", "n4", "m1"]) == "n[1-2,4],m1"
    assert compress_hosts(["n9", "n10", "n011"]) == "n[9-10,011]"
