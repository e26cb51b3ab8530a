"""How publications write models, chips and formats, and what the catalog calls them."""

from __future__ import annotations

import re
from functools import lru_cache

from cost.names import FORMATS, shortened, without_owner
from topology.base.names import plain_words
from topology.base.table import spellings

_MODEL_ALIASES = {
    "deepseek": "deepseek-v3",
    "deepseek-671b": "deepseek-v3",
    "deepseek-v3-671b": "deepseek-v3",
    "deepseek-r1-671b": "deepseek-r1",
    "deepseek-v3/r1": "deepseek-v3",
    "deepseek-v3-r1": "deepseek-v3",
    "deepseek-r1/v3": "deepseek-r1",
    "deepseek-r1-v3": "deepseek-r1",
    "dsv3": "deepseek-v3",
    "dsr1": "deepseek-r1",
    "dsv4-pro": "deepseek-v4-pro",
    "deepseek-v4": "deepseek-v4-pro",
    "gpt-oss": "gpt-oss-120b",
    "kimi": "kimi-k2",
}
_CHIP_CLUSTERS = spellings(
    {
        **{f"hgx-{chip}": chip for chip in ("h100", "h800", "h20", "h200", "b200", "b300")},
        "gb200-nvl72": "gb200",
        "gb300-nvl72": "gb300",
        "vr-nvl72": "rubin vr200",
        "mi300x": "",
        "mi325x": "",
        "mi355x": "",
        "helios-72": "mi455x",
        "cm384": "ascend-910c 910c cloudmatrix cloudmatrix384 cloudmatrix-384",
        "trn2-ultra": "trainium2 trn2",
        "tpu-v5p": "",
        "tpu-v6e": "",
        "tpu-v7": "",
    }
)
_CHIP_SUFFIX = re.compile(r"-(sxm\d?|nvl\d+(x\d+)?|hgx|dgx|\d+gb?|oam|pod|die|npu)$")
_CHIP_PREFIX = re.compile(r"^(nvidia|amd|huawei|google|hgx|dgx|geforce)-")


@lru_cache(maxsize=512)
def model_name(text: str) -> tuple[str, str]:
    """Return the catalog name that ``text`` means, and the format of the weights that it names ("" for none).

    ``deepseek-ai/DeepSeek-R1`` is ``deepseek-r1``; ``nvidia/DeepSeek-R1-NVFP4`` is ``deepseek-r1`` with weights
    in ``nvfp4``. The path of a ``config.json``, and a name that the catalog does not know, come back as given.
    """
    from cost.resolve import spelled_models

    stripped = text.strip()
    if stripped.lower().endswith(".json"):
        return stripped, ""
    candidate, weights = plain_words(stripped), ""
    if candidate not in _MODEL_ALIASES:
        candidate = without_owner(candidate)
    while candidate:
        found = _MODEL_ALIASES.get(candidate) or spelled_models().spelled(candidate)
        if found is not None:
            return found, weights
        shorter, written = shortened(candidate)
        if shorter == candidate:
            break
        candidate, weights = shorter, written or weights
    return stripped, ""


@lru_cache(maxsize=256)
def cluster_name(text: str) -> tuple[str, int]:
    """Return the catalog name of the cluster or chip that ``text`` means, and the count after ``@`` (0 for none).

    ``H800``, ``hgx-h800``, ``h800_sxm`` and ``H800-80G`` are all ``hgx-h800``. The path of a cluster YAML, and a
    name that the catalog does not know, come back as given.
    """
    from topology.catalog import cluster_names

    stripped = text.strip()
    if stripped.lower().endswith((".yaml", ".yml")):
        return stripped, 0
    head, _, count = stripped.partition("@")
    gpus = int(count) if re.fullmatch(r"\s*[0-9]{1,9}\s*", count) else 0
    candidate = plain_words(head)
    known = cluster_names()
    while candidate:
        if candidate in known:
            return candidate, gpus
        if candidate in _CHIP_CLUSTERS:
            return _CHIP_CLUSTERS[candidate], gpus
        shorter = _CHIP_SUFFIX.sub("", candidate)
        shorter = shorter if shorter != candidate else _CHIP_PREFIX.sub("", candidate)
        if shorter == candidate:
            break
        candidate = shorter
    return head.strip(), gpus


def dtype_name(text: str) -> str | None:
    """Return the name that :mod:`cost.dtypes` has for a format; None where there is none."""
    from cost.dtypes import DTYPES

    key = plain_words(text)
    if key in DTYPES or "*" in key:
        return key
    return FORMATS.get(key)
