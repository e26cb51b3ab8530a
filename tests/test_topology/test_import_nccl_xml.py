"""NCCL and RCCL topology XML."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from topology.base.errors import InputError
from topology.importers import ImportOptions, import_files
from topology.importers.importer import kind_of, parse
from topology.importers.source import Source

CHIPS = {"0000:1a:00.0": 4, "0000:1b:00.0": 5, "0000:1c:00.0": 5, "0000:1d:00.0": 4}


def gpu(number: int, links: dict[str, int] | None = None, *, tag: str = "nvlink", extra: str = "") -> str:
    """One GPU below a PCI switch of its own, with a NIC beside it."""
    targets = CHIPS if links is None else links
    inside = "".join(f'<{tag} target="{t}" count="{n}" tclass="0x068000"/>' for t, n in targets.items())
    return (
        f'<pci busid="0000:{number:02x}:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">\n'
        f'<pci busid="0000:{number:02x}:01.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">\n'
        f'<gpu dev="{number}" sm="90" rank="{number}" gdr="1">{inside}</gpu>{extra}\n</pci>\n'
        f'<pci busid="0000:{number:02x}:02.0" class="0x020700"><nic>'
        f'<net name="mlx5_{number}" dev="{number}" speed="400000" port="1"/></nic></pci>\n</pci>\n'
    )


def system(*gpus: str, version: str = "1") -> str:
    half = len(gpus) // 2 or 1
    return (
        f'<system version="{version}">\n<cpu numaid="0">\n{"".join(gpus[:half])}</cpu>\n'
        f'<cpu numaid="1">\n{"".join(gpus[half:])}</cpu>\n</system>\n'
    )


def read(text: str):
    source = Source("topo.xml", text)
    assert kind_of(source) == "nccl-xml"
    return parse(source, None)


def test_switch_chips_are_told_apart() -> None:
    node = read(system(*(gpu(i) for i in range(8))))
    assert node.gpus == tuple(f"GPU{i}" for i in range(8))
    assert not node.hidden
    assert len(node.chips) == 4
    assert sorted(count for name, _, count in node.links if name == "GPU3") == [4, 4, 5, 5]
    assert node.sockets == ("0",) * 4 + ("1",) * 4
    assert [(name.words.partition(" or ")[0], name.gpus[:1]) for name in node.gpu_names] == [
        ("compute capability 90 (h100-sxm", ("h100-sxm",)),
        ("NVIDIA's nvlink", ()),
    ]
    assert [(nic.name, nic.near) for nic in node.nics][:2] == [("mlx5_0", (0,)), ("mlx5_1", (1,))]
    assert {nic.rate.value for nic in node.nics if nic.rate} == {50e9}
    assert node.pcie[0] is not None
    assert node.pcie[0].value == pytest.approx(32e9 * 16 / 8 * 128 / 130)
    assert not node.anomalies


def test_a_gpu_without_links_is_named_and_kept() -> None:
    node = read(system(*(gpu(i, {} if i == 5 else None) for i in range(8))))
    assert len(node.gpus) == 8
    assert node.links_of_gpus == {f"GPU{i}": 0 if i == 5 else 18 for i in range(8)}


def test_dies_of_one_package_are_one_gpu() -> None:
    die = '<gpu dev="0" sm="107" mlopart="{0}"><nvlink target="fffffff:ff:ff.0" count="36" tclass="0x068000"/></gpu>'
    package = f'<pci busid="0002:81:00.0" class="0x030200">{die.format(0)}{die.format(1)}</pci>'
    text = f'<system version="1"><cpu numaid="0">{package}</cpu></system>'
    node = read(text)
    assert node.gpus == ("GPU0",)
    assert node.links == (("GPU0", "switch", 36),)


def test_a_fragment_is_read_and_said_to_be_one() -> None:
    node = read('<pci busid="0002:81:00.0" class="0x030200"><gpu dev="0" sm="100"/></pci>')
    assert node.gpus == ("GPU0",)
    assert "a fragment" in node.anomalies[0]


def test_rccl_links_gpus_to_each_other() -> None:
    ids = [f"0000:{i:02x}:01.0" for i in range(4)]
    rows = [gpu(i, {other: 1 for other in ids if other != ids[i]}, tag="xgmi") for i in range(4)]
    node = read(system(*rows, version="2"))
    assert node.link_kind == "xgmi"
    assert len(node.links) == 6


def test_two_ports_of_one_nic_are_two() -> None:
    text = system(gpu(0), gpu(1)).replace(
        '<net name="mlx5_0" dev="0" speed="400000" port="1"/>',
        '<net name="mlx5_0" dev="0" speed="180000" port="1"/><net name="mlx5_9" dev="9" speed="180000" port="2"/>',
    )
    node = read(text)
    assert [(nic.name, nic.near) for nic in node.nics] == [
        ("mlx5_0", (0,)),
        ("mlx5_9", (0,)),
        ("mlx5_1", (1,)),
    ]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda t: t[: len(t) // 2], "is not closed"),
        (lambda t: t.replace('<gpu dev="1"', '<gpu dev="0"'), 'duplicate <gpu dev="0">'),
        (lambda t: t.replace('count="5"', 'count="-5"', 1), "must be a whole number"),
        (lambda t: t.replace("0000:1c:00.0", "nowhere", 1), "is not a PCI bus id"),
        (lambda _: '<graphs version="1"><graph id="0"/></graphs>', "is an NCCL graph"),
        (
            lambda t: t.replace(
                'target="0000:1c:00.0" count="5" tclass="0x068000"',
                'target="0000:77:00.0" count="5" tclass="0x030200"',
                1,
            ),
            "not in the file",
        ),
    ],
)
def test_damage_is_one_line_with_its_place(damage: object, problem: str) -> None:
    assert callable(damage)
    with pytest.raises(InputError) as caught:
        parse(Source("topo.xml", damage(system(gpu(0), gpu(1)))), "nccl-xml")
    assert str(caught.value).startswith("topo.xml: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_gpus_that_disagree_on_their_links() -> None:
    a, b = "0000:00:01.0", "0000:01:01.0"
    with pytest.raises(InputError, match="GPU0 lists 2 links to GPU1, but GPU1 lists 1 to GPU0"):
        read(system(gpu(0, {b: 2}, tag="xgmi"), gpu(1, {a: 1}, tag="xgmi")))


@pytest.mark.parametrize(
    ("new", "name", "problem"),
    [
        ('sm="80"', "h100-sxm", r"the file says compute capability 80 \(.*\), not h100-sxm"),
        ('sm="86"', "h100-sxm", r"compute capability 86 \(no GPU of the catalog\)"),
        ('sm="94" gcn="gfx950"', "mi300x", r"gfx950 \(mi350x or mi355x\), not mi300x"),
    ],
)
def test_a_gpu_of_another_architecture_is_refused(tmp_path: Path, new: str, name: str, problem: str) -> None:
    path = tmp_path / "t.xml"
    path.write_text(system(gpu(0), gpu(1)).replace('sm="90"', new))
    with pytest.raises(InputError, match=problem):
        import_files([str(path)], ImportOptions(gpu=name))


@pytest.mark.parametrize(
    ("device", "others"),
    [
        ("0x2335", r"PCI device 10de:2335 \(h200-sxm\), not"),
        ("0x2331", r"\(H100 PCIe\), not"),
        ("0xffff", ""),
    ],
)
def test_pci_devices_name_gpus(tmp_path: Path, device: str, others: str) -> None:
    path = tmp_path / "t.xml"
    text = system(*(gpu(i) for i in range(8)))
    path.write_text(text.replace('class="0x030200"', f'class="0x030200" vendor="0x10de" device="{device}"'))
    with pytest.raises(InputError, match=others) if others else nullcontext():
        assert import_files([str(path)], ImportOptions(gpu="h100-sxm")).spec.gpus == 8


def test_a_pci_device_of_one_product_needs_no_option(tmp_path: Path) -> None:
    path = tmp_path / "t.xml"
    text = system(*(gpu(i) for i in range(8)))
    path.write_text(text.replace('class="0x030200"', 'class="0x030200" vendor="0x10de" device="0x2330"'))
    imported = import_files([str(path)], ImportOptions())
    assert imported.spec.domains[0].gpu.name == "h100-sxm"
    assert "GPU type: h100-sxm (PCI device 10de:2330 (h100-sxm))." in imported.assumptions
    path.write_text(text)
    with pytest.raises(InputError, match="the GPU type"):
        import_files([str(path)], ImportOptions())


def test_parts_slower_than_their_like_are_named() -> None:
    slow_nic = gpu(3).replace('speed="400000"', 'speed="100000"')
    slow_slot = gpu(5).replace('link_width="16">\n<gpu', 'link_width="4">\n<gpu')
    node = read(system(*(gpu(i) for i in range(3)), slow_nic, gpu(4), slow_slot))
    assert len(node.anomalies) == 2
    assert "the port of mlx5_3 runs at 12.5 GB/s each way (100 Gb/s)" in node.anomalies[0]
    assert "the PCIe link of GPU5 runs at 15.75 GB/s each way" in node.anomalies[1]


def test_slices_of_a_gpu_are_said_to_be_one() -> None:
    both = gpu(0).replace("</gpu>", '</gpu><gpu dev="1" sm="90"/>')
    node = read(f'<system version="1"><cpu numaid="0">{both}</cpu></system>')
    assert node.gpus == ("GPU0",)
    assert "2 ranks on one PCI device (MIG slices" in node.anomalies[0]


def test_a_speed_too_fast_for_megabits_is_in_kilobits() -> None:
    node = parse(Source("t.xml", system(gpu(0), gpu(1)).replace('speed="400000"', 'speed="200000000"')))
    assert {nic.rate.value for nic in node.nics} == {25e9}
    assert (
        node.readings[0]
        == 'NIC of t.xml: speed="200000000" read as kb/s, 200 Gb/s, since it is too fast in Mb/s.'
    )


def test_gpus_on_switches_that_nothing_joins_are_reported(tmp_path: Path) -> None:
    other = {target.replace("0000:1", "0000:f"): count for target, count in CHIPS.items()}
    path = tmp_path / "t.xml"
    path.write_text(system(*(gpu(i, CHIPS if i < 8 else other) for i in range(16))))
    options = ImportOptions(
        gpu="own", hbm="80 GB", fabrics=("nvlink4",), pcie="64 GB/s", socket_link="40 GB/s"
    )
    with pytest.raises(
        InputError, match=r"separate switches that the file does not connect: GPU0, GPU1, .*; GPU8"
    ):
        import_files([str(path)], options)
