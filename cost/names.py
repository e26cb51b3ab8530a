"""What the end of a model's name says: the format of the weights, or only what they were tuned for."""

from __future__ import annotations

import re

from topology.base.names import plain_words
from topology.base.table import spellings

FORMATS = spellings(
    {
        "fp8": "fp8-block block-fp8 w8a8-fp8 e4m3",
        "nvfp4": "fp4 nv-fp4",
        "mxfp4": "",
        "mxfp8": "",
        "bf16": "bfloat16",
        "fp16": "float16",
        "fp32": "",
        "int8": "w8a8",
        "int4": "int4-wo w4a16 awq gptq",
    }
)
"""The format of each word by which publications call one."""

# Precisions at the end of a model's name tell the weights; the rest only what the weights were tuned for.
_PRECISION = re.compile(r"-(nvfp4|mxfp4|mxfp8|fp4|fp8|bf16|awq|gptq|int4|int8|w4a16|w8a8)(-dynamic|-v\d+)?$")
_TUNED = re.compile(
    r"-(instruct|chat|base|hf|it|thinking|exp|terminus|block|preview|v0\.\d|\d{4}|\d+(\.\d+)?t|\d+e)$"
)


def shortened(name: str) -> tuple[str, str]:
    """Return ``name`` (plain words) without its last remark, and the format that this named; "" where it names none.

    ``deepseek-r1-nvfp4`` is ``deepseek-r1`` in ``nvfp4``, ``kimi-k2-instruct`` is ``kimi-k2``. A name that ends in no
    remark comes back as it is.
    """
    precision = _PRECISION.search(name)
    if precision:
        return name[: precision.start()], FORMATS[precision.group(1)]
    return _TUNED.sub("", name), ""


def without_owner(text: str) -> str:
    """Return the plain words of ``owner/model`` after the owner; a second model (``deepseek-v3/r1``) is none."""
    name = plain_words(text)
    _, slash, rest = name.partition("/")
    return rest if slash and not re.fullmatch(r"[vr]\d+", rest) else name
