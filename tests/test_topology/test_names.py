"""Names as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.base.errors import InputError
from topology.base.names import Names
from topology.catalog import cluster_names, fabric_names, gpu_names
from topology.catalog.spelled import fabric_called, find_gpu, system_called
from topology.files.resolve import cluster_called, resolve_cluster

KNOWN = ("qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-next-80b", "kimi-k2", "kimi-k2.5")
NAMES = Names("model", {name: name for name in KNOWN})


@given(st.sampled_from(KNOWN), st.randoms(use_true_random=False))
def test_case_and_what_stands_between_words_do_not_matter(name: str, random: object) -> None:
    choice = random.choice  # type: ignore[attr-defined]
    typed = "".join(choice("-_ ") if c == "-" else choice((c, c.upper())) for c in name)
    assert NAMES.one(f" {typed} ") == name
    assert NAMES.one(typed.replace("-", "")) in (name, NAMES.one(typed))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Qwen3-235B", ("qwen3-235b-a22b",)),
        ("Qwen-3 235b", ("qwen3-235b-a22b",)),
        ("kimi k2", ("kimi-k2",)),  # the whole of one name goes before the beginning of another
        ("qwen3", ("qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-next-80b")),
        ("qwen3-2", ()),  # not a whole word
        ("a22b", ()),
        ("", ()),
    ],
)
def test_a_beginning_means_what_has_it(text: str, meant: tuple[str, ...]) -> None:
    assert NAMES.meant(text) == meant


def test_the_nearest_three_are_offered() -> None:
    assert NAMES.near("qwen4-235b").count(" or ") == 2
    assert NAMES.near("qwen4-235b").startswith("did you mean qwen3-235b-a22b or ")
    assert NAMES.near("kimi-k3").startswith("did you mean kimi-k2 or kimi-k2.5")
    assert NAMES.near("235b").startswith("did you mean qwen3-235b-a22b")
    assert NAMES.near("zzzzzz") == NAMES.near("") == f"known: {', '.join(sorted(KNOWN))}."


@pytest.mark.parametrize("name", [*cluster_names(), *gpu_names(), *fabric_names()])
def test_a_name_of_the_catalog_is_itself(name: str) -> None:
    if name in cluster_names():
        assert system_called(name) == system_called(name.upper()) == name
    if name in gpu_names():
        assert find_gpu(name) == find_gpu(name.upper().replace("-", " ")) == name
    if name in fabric_names():
        assert fabric_called(name.upper()) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA H200", "hgx-h200"),
        ("TPU v5p@4x4x4", "tpu-v5p@4x4x4"),
        ("8 \u00d7 H100", "hgx-h100"),
        ("hgx-h100 x 4", "hgx-h100@32"),
        ("4x GB200 NVL72", "gb200-nvl72@288"),
        ("v5p x 4x4x8", "tpu-v5p@4x4x8"),
        ("Intel Gaudi 3", "gaudi3"),
    ],
)
def test_clusters_in_any_spelling(text: str, name: str) -> None:
    assert cluster_called(text) == name
    assert resolve_cluster(text).name == resolve_cluster(name).name == name


def test_what_means_none_or_several_is_refused() -> None:
    assert find_gpu("h10") is None
    with pytest.raises(
        InputError, match="cluster 'tpu' may be tpu-v5e, tpu-v5p, tpu-v6e, tpu-v7, tpu-8t or tpu-8i"
    ):
        system_called("tpu")
    with pytest.raises(
        InputError, match=r'unknown cluster "gb20"; did you mean .*gb200-nvl72 or .* must end in \.yaml'
    ):
        cluster_called("gb20")
    with pytest.raises(InputError, match='unknown fabric "nvlink9"; did you mean nvlink'):
        fabric_called("nvlink9")
