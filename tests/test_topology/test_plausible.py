"""Unit errors: each that can be detected is, with what was probably meant, and can be insisted on."""

from __future__ import annotations

from pathlib import Path

import pytest

from topology import InputError, cluster_names, load_domain, resolve_cluster

H100 = "gpu: h100-sxm, gpus: 8, gpus_per_node: 8, structure: switch, links_per_switch: [5, 5, 4, 4]"
TPU = "gpu: tpu-v5p, structure: torus, shape: [4, 4, 4], wrap: true"
MI300 = "gpu: mi300x, structure: mesh, gpus: 8, gpus_per_node: 8"


def read(folder: Path, text: str) -> None:
    path = folder / "mine.yaml"
    path.write_text(text)
    resolve_cluster(str(path))


WRONG = [
    (f"{H100}, link: 25 Gb/s", "25 GB/s was probably meant"),
    (f"{H100}, link: 50 GB/s", "so both directions were probably counted; give 25 GB/s"),
    (f"{H100}, link: 200 GB/s", "eight times that, so Gb/s was probably written as GB/s; 25 GB/s"),
    (f"{H100}, link: 450 GB/s", "the total rate of all links"),
    (f"{H100}, link: 900 GB/s", "the total rate of all links"),
    (f"{H100}, link: 1 GB/s", "far less"),
    (f"{H100}, link: 60 GB/s", "more than it can carry"),
    (f"{H100.replace('[5, 5, 4, 4]', '[9, 9, 9, 9]')}, link: 25 GB/s", "both directions"),
    (f"{TPU}, link: 200 GB/s", "give 100 GB/s"),
    (f"{TPU}, link: 100 Gb/s", "100 GB/s was probably meant"),
    (f"{MI300}, link: 128 GB/s", "give 64 GB/s"),
    (f"{MI300}, link: 448 GB/s", "the total rate of all links"),
    (f"{H100}, link: 25 GB/s, latency: 5 s", "one hop"),
]


@pytest.mark.parametrize(("row", "words"), WRONG)
def test_links_off_by_a_unit(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, f"domains: [{{{row}}}]")
    assert words in str(caught.value)
    assert "rate_checked: true" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row", [row for row, _ in WRONG])
def test_one_can_insist(tmp_path: Path, row: str) -> None:
    read(tmp_path, f"domains: [{{{row}, rate_checked: true}}]")


@pytest.mark.parametrize("name", [n for n in cluster_names() if not load_domain(n).links_bundled])
def test_every_part_written_out_passes(tmp_path: Path, name: str) -> None:
    domain = load_domain(name)
    if domain.structure == "torus":
        rates = ", ".join(fabric.link_bytes_per_s.text for fabric in domain.fabric_of_dimension)
        row = f"structure: torus, shape: {list(domain.shape)}, wrap: true, link: [{rates}]"
    else:
        row = f"structure: {domain.structure}, gpus: {domain.gpus}, gpus_per_node: {domain.gpus_per_node}"
        row += f", link: {domain.fabric.link_bytes_per_s.text}"
        for key in ("links_per_switch", "upper_switches"):
            if key in domain.keys:
                value = getattr(domain, key)
                row += f", {key}: {list(value) if isinstance(value, tuple) else value}"
    read(tmp_path, f"domains: [{{gpu: {domain.gpu.name}, {row}}}]")
    assert load_domain(name).scale_up_bytes_per_s > 0


OWN = "gpus: {x1: {hbm_bytes: 10 GB, hbm_bytes_per_s: 1 TB/s, bf16_flop_per_s: 10 TFLOP/s}}\n"
ROW = "gpu: x1, gpus: 4, gpus_per_node: 4, structure: switch, links_per_switch: [2]"


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("25 Gb/s, link_kind: nvlink", "too slow for one nvlink link"),
        ("900 GB/s, link_kind: nvlink", "ONE direction"),
    ],
)
def test_a_gpu_of_ones_own_is_checked_by_kind(tmp_path: Path, link: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, OWN + f"domains: [{{{ROW}, link: {link}}}]")
    read(tmp_path, OWN + f"domains: [{{{ROW}, link: 50 GB/s, link_kind: nvlink}}]")


@pytest.mark.parametrize(
    ("nic", "words"),
    [
        ("400 GB/s", "400 Gb/s was probably meant"),
        ("50 Gb/s", "400 Gb/s was probably meant"),
        ("1 Gb/s", "8 Gb/s was probably meant"),
        ("3200 Gb/s", "too fast for a NIC"),
    ],
)
def test_nics_off_by_a_unit(tmp_path: Path, nic: str, words: str) -> None:
    text = "domains: [{part: gb200-nvl72, count: 2}]\nfabric: {kind: rail, nic: %s%s}"
    with pytest.raises(InputError, match=words) as caught:
        read(tmp_path, text % (nic, ""))
    assert "rate_checked: true" in str(caught.value)
    read(tmp_path, text % (nic, ", rate_checked: true"))


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ("bf16_flop_per_s: 1979 TFLOP/s", "with 2:4 sparsity"),
        ("hbm_bytes_per_s: 3.35 Tb/s", "bits and bytes"),
        ("hbm_bytes_per_s: 3.35 GB/s", "prefix"),
        ("hbm_bytes: 80 MB", "prefix"),
    ],
)
def test_figures_of_a_known_gpu_off_by_a_unit(tmp_path: Path, figures: str, words: str) -> None:
    text = "domains: [{part: hgx-h100}]\ngpus: {h100-sxm: {%s%s}}"
    with pytest.raises(InputError, match=words):
        read(tmp_path, text % (figures, ""))
    read(tmp_path, text % (figures, ", rate_checked: true"))
