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


OWN = "gpus: {x1: {hbm_bytes: 10 GB, hbm_bytes_per_s: 1 TB/s, bf16_flop_per_s: 10 TFLOP/s}}\n"
ROW = "gpu: x1, gpus: 4, gpus_per_node: 4, structure: switch, links_per_switch: [2], link_kind: nvlink"
RACKS = "domains: [{part: gb200-nvl72, count: 2}]\nfabric: {kind: rail, nic: %s{}}"
KNOWN = "domains: [{part: hgx-h100}]\ngpus: {h100-sxm: {%s{}}}"


WHOLE = OWN.replace("10 TFLOP/s}}", "10 TFLOP/s, fp8_flop_per_s: 20 TFLOP/s{}}}") + "domains: [{" + ROW
WHOLE += ", link: 50 GB/s}]"
NODES = """
  - {id: a.g0, kind: gpu, domain: a, node: a, gpu: h100-sxm}
  - {id: a.g1, kind: gpu, domain: a, node: a, gpu: h100-sxm}
  - {id: a.s0, kind: switch, domain: a}
  - {id: leaf, kind: leaf}
"""
GRAPH = f"""nodes: {NODES}links:
  - {{between: [a.g0, a.s0], rate: 25 GB/s, count: 18}}
  - {{between: [a.g1, a.s0], rate: 25 GB/s, count: 18}}
  - {{between: [a.g0, leaf], rate: %s, latency: 5 us}}
  - {{between: [a.g1, leaf], rate: %s, latency: 5 us}}
"""


def one(row: str) -> str:
    return f"domains: [{{{row}{{}}}}]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (one(f"{H100}, link: 25 Gb/s"), "25 GB/s was probably meant"),
        (one(f"{H100}, link: 50 GB/s"), "so both directions were probably counted; give 25 GB/s"),
        (one(f"{H100}, link: 200 GB/s"), "eight times that, so Gb/s was probably written as GB/s; 25 GB/s"),
        (one(f"{H100}, link: 450 GB/s"), "the total rate of all links"),
        (one(f"{H100}, link: 1 GB/s"), "far less"),
        (one(f"{H100}, link: 60 GB/s"), "more than it can carry"),
        (one(f"{H100.replace('[5, 5, 4, 4]', '[9, 9, 9, 9]')}, link: 25 GB/s"), "both directions"),
        (one(f"{TPU}, link: 100 Gb/s"), "100 GB/s was probably meant"),
        (one(f"{MI300}, link: 448 GB/s"), "the total rate of all links"),
        (one(f"{H100}, link: 25 GB/s, latency: 5 s"), "one hop"),
        (OWN + one(f"{ROW}, link: 25 Gb/s"), "too slow for one nvlink link"),
        (OWN + one(f"{ROW}, link: 900 GB/s"), "ONE direction"),
        (RACKS % "400 GB/s", "400 Gb/s was probably meant"),
        (RACKS % "1 Gb/s", "8 Gb/s was probably meant"),
        (RACKS % "3200 Gb/s", "too fast for a NIC"),
        (KNOWN % "bf16_flop_per_s: 1979 TFLOP/s", "with 2:4 sparsity"),
        (KNOWN % "hbm_bytes_per_s: 3.35 Tb/s", "bits and bytes"),
        (KNOWN % "hbm_bytes_per_s: 3.35 GB/s", "prefix"),
        (KNOWN % "hbm_bytes: 80 MB", "too small for the memory of one GPU"),
        (KNOWN % "power_w: 10.2 kW", "is it that of the whole host?"),
        (KNOWN % "usd_per_h: 2500 USD/h", "too large for the price of one GPU-hour"),
        (WHOLE.replace("10 GB", "80 TB"), "too large for the memory of one GPU"),
        (WHOLE.replace("1 TB/s", "3350 TB/s"), "too large for the bandwidth of one GPU's memory"),
        (WHOLE.replace("1 TB/s", "3.35 GB/s"), "too small for the bandwidth of one GPU's memory"),
        (WHOLE.replace("10 TFLOP/s", "989 GFLOP/s"), "too small for the dense BF16 peak"),
        (WHOLE.replace("20 TFLOP/s", "9 TFLOP/s"), "slower than BF16 at 10 Tflop/s; were the two swapped?"),
        (
            WHOLE.replace("10 GB", "80 GB")
            .replace("1 TB/s", "3.35 TB/s")
            .replace("10 TFLOP/s", "1979 TFLOP/s")
            .replace("20 TFLOP/s", "3958 TFLOP/s"),
            "twice the dense peak of h100-sxm, which has the same memory",
        ),
        (one(f"{H100}, link: 25 GB/s, latency: 0.5 ms"), "one hop inside a scale-up domain"),
    ],
)
def test_what_is_off_by_a_unit_is_refused_unless_one_insists(tmp_path: Path, text: str, words: str) -> None:
    before, after = text.rsplit("{}", 1)
    with pytest.raises(InputError) as caught:
        read(tmp_path, before + after)
    assert words in str(caught.value)
    assert "rate_checked: true" in str(caught.value)
    assert "\n" not in str(caught.value)
    read(tmp_path, f"{before}, rate_checked: true{after}")


@pytest.mark.parametrize("name", [n for n in cluster_names() if not load_domain(n).links_bundled])
def test_every_part_written_out_passes(tmp_path: Path, name: str) -> None:
    domain = load_domain(name)
    if domain.structure == "torus":
        rates = ", ".join(fabric.link_bytes_per_s.text for fabric in domain.fabric_of_dimension)
        row = f"structure: torus, shape: {list(domain.shape)}, wrap: true, link: [{rates}]"
    else:
        row = f"structure: {domain.structure}, gpus: {domain.gpus}, gpus_per_node: {domain.gpus_per_node}"
        row += f", link: {domain.fabric.link_bytes_per_s.text}"
        for key in ("links_per_switch", "upper_switches", "members", "links_per_member"):
            if key in domain.keys:
                value = getattr(domain, key)
                row += f", {key}: {list(value) if isinstance(value, tuple) else value}"
    read(tmp_path, f"domains: [{{gpu: {domain.gpu.name}, {row}}}]")
    assert load_domain(name).scale_up_bytes_per_s > 0


def test_a_gpu_of_ones_own_has_links_of_a_known_kind(tmp_path: Path) -> None:
    read(tmp_path, OWN + f"domains: [{{{ROW}, link: 50 GB/s}}]")


def test_a_nic_of_a_graph_has_the_rate_of_a_port(tmp_path: Path) -> None:
    read(tmp_path, GRAPH % ("400 Gb/s", "400 Gb/s"))
    with pytest.raises(InputError, match="400 Gb/s was probably meant"):
        read(tmp_path, GRAPH % ("400 GB/s", "400 Gb/s"))


def test_a_fast_chip_of_some_years_ahead_passes(tmp_path: Path) -> None:
    figures = (
        "hbm_bytes: 1 TB, hbm_bytes_per_s: 40 TB/s, bf16_flop_per_s: 20 PFLOP/s, fp8_flop_per_s: 40 PFLOP/s"
    )
    own = f"gpus: {{x1: {{{figures}, power_w: 6 kW, usd_per_h: 40 USD/h}}}}\n"
    read(tmp_path, f"{own}domains: [{{{ROW}, link: 200 GB/s}}]")
