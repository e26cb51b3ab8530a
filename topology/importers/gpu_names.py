"""How files name GPUs: compute capability, AMD target, PCI id, product name, or the vendor whose tool wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from topology.catalog import gpu_names
from topology.catalog.spelled import spelled_gpus
from topology.spec import GpuSpec

_ARCHITECTURES = {
    "80": ("a100-sxm", "a100-sxm-40gb"),
    "89": ("l40s",),
    "90": ("h100-sxm", "h800-sxm", "h20-sxm", "h20-sxm-141gb", "h200-sxm", "gh200"),
    "100": ("b200-sxm", "gb200"),
    "103": ("b300-sxm", "gb300"),
    "107": ("rubin",),
    "120": ("rtx-pro-6000",),
    "gfx942": ("mi300x", "mi325x"),
    "gfx950": ("mi350x", "mi355x"),
}
"""GPUs by CUDA compute capability (NVIDIA's list; 10.7 as NCCL prints it of VR200), or AMD's target (LLVM's list)."""
_PCI_IDS = {
    "10de:20b0": "a100-sxm-40gb", "10de:20b2": "a100-sxm", "10de:20b1": "A100 PCIe", "10de:20b5": "A100 PCIe",
    "10de:20f3": "A800 SXM", "10de:2330": "h100-sxm", "10de:2331": "H100 PCIe", "10de:2321": "H100 NVL",
    "10de:2324": "h800-sxm", "10de:2329": "h20-sxm", "10de:232c": "h20-sxm-141gb", "10de:2335": "h200-sxm",
    "10de:233b": "H200 NVL", "10de:2342": "gh200", "10de:2348": "GH200 HBM3e", "10de:2901": "b200-sxm",
    "10de:2941": "gb200", "10de:3182": "b300-sxm", "10de:31c2": "gb300", "10de:31c3": "gb300",
    "10de:26b9": "l40s", "10de:2bb5": "rtx-pro-6000",
    "1002:74a0": "MI300A", "1002:74a1": "mi300x", "1002:74a2": "MI308X", "1002:74a5": "mi325x",
    "1002:74a9": "mi300x", "1002:74b5": "mi300x", "1002:74b9": "mi325x", "1002:74bd": "mi300x",
    "1002:75a0": "mi350x", "1002:75a3": "mi355x",
}  # fmt: skip
"""GPUs by PCI vendor and device (the PCI ID Project's list), those of the catalog by their names there."""
_VENDORS = {"10de": "NVIDIA", "1002": "AMD"}


@dataclass(frozen=True)
class GpuName:
    """What a file calls its GPUs.

    ``words`` say so in messages; ``gpus`` are those of the catalog that it can mean, ``known`` those that a name of
    this kind tells apart. Of other GPUs only ``vendor`` is compared. ``exact`` names are of one product.
    """

    words: str
    vendor: str
    gpus: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    exact: bool = False

    def means(self, gpu: GpuSpec) -> bool:
        """Return whether it can be the name of a GPU of the catalog."""
        if gpu.name in self.gpus or gpu.name in self.known:
            return gpu.name in self.gpus
        return gpu.vendor in (self.vendor, "none")


def architecture(name: str) -> GpuName:
    """Return what a compute capability (``90``) or AMD target (``gfx942``) names."""
    gpus = _in_catalog(_ARCHITECTURES.get(name, ()))
    amd = name.startswith("gfx")
    meant = " or ".join(gpus) or "no GPU of the catalog"
    words = f"{'' if amd else 'compute capability '}{name} ({meant})"
    known = _in_catalog(gpu for names in _ARCHITECTURES.values() for gpu in names)
    return GpuName(words, "AMD" if amd else "NVIDIA", gpus, known)


def pci_device(vendor: str, device: str) -> GpuName | None:
    """Return what PCI ids (``0x10de``, ``0x2330``) name; None of ids that are not known."""
    ids = f"{vendor.removeprefix('0x')}:{device.removeprefix('0x')}".lower()
    name, maker = _PCI_IDS.get(ids), _VENDORS.get(ids[:4])
    if maker is None or name is None:
        return None if maker is None else GpuName(f"PCI device {ids}", maker)
    known = _in_catalog(_PCI_IDS.values())
    return GpuName(f"PCI device {ids} ({name})", maker, _in_catalog([name]), known, exact=True)


def product(text: str, vendor: str) -> GpuName:
    """Return what a product name (``NVIDIA-H100-80GB-HBM3``) means."""
    plain = re.sub(r"[- ](SHARED|MIG-.*|OAM)$", "", text.strip().replace("_", " "))
    return GpuName(text.strip(), vendor, spelled_gpus().meant(plain), gpu_names())


def _in_catalog(names: Iterable[str]) -> tuple[str, ...]:
    known = gpu_names()
    return tuple(dict.fromkeys(name for name in names if name in known))
