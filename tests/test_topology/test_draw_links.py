"""Counts of links in words, names of many things, widths of texts."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.draw.canvas import fitting, text_width
from topology.draw.captions import broken_lines, common_head, ranges
from topology.draw.parts import Links, most_common
from topology.names import natural
from topology.units import plural

FONT = Path(__file__).resolve().parents[2] / "topology" / "fonts" / "DejaVuSans.ttf"


def links(*edges: tuple[int, float, float]) -> Links:
    found = Links()
    for count, rate, health in edges:
        found.add({"count": count, "link_bytes_per_s": rate, "health": health})
    return found


@pytest.mark.parametrize(
    ("edges", "text"),
    [
        ([], "no link"),
        ([(1, 50e9, 1.0)], "50 GB/s each way"),
        ([(18, 25e9, 1.0)], "18 x 25 GB/s = 450 GB/s each way"),
        ([(9, 25e9, 1.0), (9, 25e9, 1.0)], "18 x 25 GB/s = 450 GB/s each way"),
        ([(1, 50e9, 0.5)], "50 GB/s x 0.5 = 25 GB/s each way"),
        ([(17, 50e9, 1.0), (1, 50e9, 0.5)], "17 x 50 GB/s + 1 x 50 GB/s x 0.5 = 875 GB/s each way"),
        ([(2, 64e9, 1.0), (4, 128e9, 1.0)], "4 x 128 GB/s + 2 x 64 GB/s = 640 GB/s each way"),
        ([(3, float("nan"), 1.0)], "3 x unpublished rate"),
    ],
)
def test_count_times_rate(edges: list[tuple[int, float, float]], text: str) -> None:
    assert links(*edges).text() == text


edge = st.tuples(st.integers(1, 99), st.sampled_from([25e9, 50e9]), st.sampled_from([1.0, 0.5]))


@given(st.lists(st.lists(edge, max_size=4), max_size=4))
@settings(deadline=None, max_examples=60)
def test_sums_lose_nothing(parts: list[list[tuple[int, float, float]]]) -> None:
    total = Links.sum(links(*part) for part in parts)
    assert total.count == sum(count for part in parts for count, _, _ in part)
    assert total.bytes_per_s == pytest.approx(sum(n * r * h for part in parts for n, r, h in part))


def test_a_share_is_what_each_has_or_nothing() -> None:
    share = links((8, 50e9, 1.0)).share(4)
    assert share is not None
    assert share.text() == "2 x 50 GB/s = 100 GB/s each way"
    assert links((7, 50e9, 1.0)).share(4) is None


def test_the_most_common_links() -> None:
    usual, which = most_common([links((18, 50e9, 1.0)), links((17, 50e9, 1.0)), links((18, 50e9, 1.0))])
    assert (usual.count, which) == (18, "most")
    assert most_common([links((1, 1e9, 1.0))] * 2)[1] == "each"
    usual, which = most_common([links((17, 50e9, 1.0)), links((18, 50e9, 1.0))])
    assert (usual.count, which) == (18, "some")


def test_words() -> None:
    assert [plural(1, "leaf"), plural(1024, "leaf"), plural(0, "GPU")] == ["1 leaf", "1,024 leaves", "0 GPUs"]
    assert ranges([3, 1, 2, 7]) == "d1 to d3, d7"
    assert ranges([1, 3, 5, 7]) == "d1, d3, d5, ..."
    assert common_head(["f.p0.l0", "f.p0.l1"]) == "f.p0"
    assert common_head(["a.l0", "b.l1"]) == ""
    assert broken_lines("2 x 5 = 10 each way") == ["2 x 5", "= 10 each way"]
    assert sorted(["d10", "d9", "d"], key=natural) == ["d", "d9", "d10"]


@given(st.lists(st.text(max_size=6), max_size=6))
@settings(deadline=None, max_examples=60)
def test_any_names_can_be_sorted(names: list[str]) -> None:
    backwards = list(reversed(names))
    backwards.sort(key=natural)
    assert backwards == sorted(names, key=natural)


def font_widths() -> dict[str, float]:
    """Advance widths of the bundled font, as parts of its size, read from its tables."""
    data = FONT.read_bytes()
    tables = {}
    for i in range(struct.unpack(">H", data[4:6])[0]):
        tables[data[12 + 16 * i : 16 + 16 * i].decode()] = struct.unpack(
            ">I", data[20 + 16 * i : 24 + 16 * i]
        )[0]
    (size,) = struct.unpack(">H", data[tables["head"] + 18 : tables["head"] + 20])
    cmap = tables["cmap"]
    for i in range(struct.unpack(">H", data[cmap + 2 : cmap + 4])[0]):
        (offset,) = struct.unpack(">I", data[cmap + 8 + 8 * i : cmap + 12 + 8 * i])
        at = cmap + offset
        if struct.unpack(">H", data[at : at + 2])[0] == 4:
            break
    segments = struct.unpack(">H", data[at + 6 : at + 8])[0] // 2
    ends, starts, deltas, offsets = (
        struct.unpack(f">{segments}{kind}", data[at + start : at + start + 2 * segments])
        for kind, start in (
            ("H", 14),
            ("H", 16 + 2 * segments),
            ("h", 16 + 4 * segments),
            ("H", 16 + 6 * segments),
        )
    )
    widths = {}
    for code in range(32, 127):
        segment = next(i for i in range(segments) if starts[i] <= code <= ends[i])
        assert offsets[segment] == 0
        glyph = (code + deltas[segment]) & 0xFFFF
        place = tables["hmtx"] + 4 * glyph
        widths[chr(code)] = struct.unpack(">H", data[place : place + 2])[0] / size
    return widths


def test_widths_are_those_of_the_font() -> None:
    for letter, width in font_widths().items():
        assert text_width(letter * 50, 10) == pytest.approx(width * 500 + 2, abs=4)


@given(st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=40), st.integers(20, 200))
@settings(deadline=None, max_examples=80)
def test_a_cut_text_fits(text: str, width: int) -> None:
    cut = fitting(text, width, 9)
    assert cut == text or (cut.endswith("...") and text.startswith(cut[:-3]))
    assert text_width(cut, 9, bold=True) <= width or cut == "..."
