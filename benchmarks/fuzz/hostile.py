"""What people and programs put where something else belongs: numbers, texts, values and bytes that break readers."""

from __future__ import annotations

from random import Random
from typing import Any

MARK = "rackplan-was-here"
"""In every hostile name: where it is looked for in what is written."""
NUMBERS: tuple[float, ...] = (
    *(0, 1, -1, 2, 3, 7, 8, 9, 16, 17, 31, 64, 65, 72, 100, 127, 128, 255, 256, 257, 1000, 1024, 4096),
    *(0.5, -0.5, 1.5, 1e-9, 1e-300, 5e-324, 1e15, 1e18, 1e300, 1.7976931348623157e308, -0.0, 0.1),
    *(2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**20, 10**40, -(2**63) - 1),
    *(float("nan"), float("inf"), float("-inf")),
)
LARGE = (9_999, 20_000, 65_536, 99_999, 100_000, 199_999, 250_000, 1_000_000, 16_777_216)
"""Small to write, and perhaps long to make."""
TEXTS = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1e999",
        "nan",
        "inf",
        "null",
        "true",
        "~",
        "yes",
        "00",
        "0x10",
        "1_000",
        "1,000",
        "½",
        "\ud800",
        "a\udfff/b",
    ),
    *(
        "9" * 25,
        "9" * 5000,
        "1e-400",
        "+5",
        "5.",
        ".5",
        "1:30",
        "12:30:45",
        "2026-11-23",
        "0b1",
        "0o17",
        "١٢",
        "²",
    ),
    *(
        "450 GB/s",
        "-450 GB/s",
        "1e400 GB/s",
        "0 GB/s",
        "450 GB",
        "450 Gb/s",
        "450 furlongs",
        "4x",
        "-2x",
        "+10%",
        "1e999x",
    ),
    *(
        "gpu",
        "node",
        "switch",
        "GPU0",
        "gb200",
        "hgx-h100",
        "h100",
        "mixtral-8x7b",
        "bf16",
        "fp8",
        "decode",
        "all",
    ),
    *(
        "n[1-3]",
        "n[3-1]",
        "n[",
        "n]",
        "n[]",
        "n[1-]",
        "n[1,,2]",
        "n[001-3]",
        "[1-2][1-2]",
        "a,b",
        "a[1-2]b[1-2]",
    ),
    *(
        "../../../../nowhere/x",
        "/nowhere/x",
        "..",
        ".",
        "~root",
        "C:\\x",
        "con",
        "a/b",
        "\\\\host\\x",
        "file:///etc/x",
    ),
    *(
        "x\x1b[31m",
        "x\x1b]0;t\x07",
        "x\x9b31m",
        "a\nb",
        "a\rb",
        "a\tb",
        "a\0b",
        "\u202ex",
        "\u2028",
        "\ufeffx",
        "\ud7ff",
    ),
    *("é", "日本", "🎉", "e\u0301", "ﬁ", "İ", "ß", "\u0130", "\U000e0041", "\uffff"),
    *(f"<script>{MARK}</script>", f'"><img src=x onerror={MARK}>', f"</script><script>{MARK}", f"'-{MARK}-'"),
    *(
        f"=cmd|'{MARK}'!A1",
        f"@SUM({MARK})",
        f"+{MARK}",
        f"-{MARK}",
        "${7*7}",
        "{{7*7}}",
        "%s%n",
        "%(x)s",
        "{0}",
        "\\",
    ),
    *(
        "$(touch ran)",
        "`touch ran`",
        "; touch ran",
        "| touch ran",
        "--help",
        "-o",
        "--json",
        "@argfile",
        "a=b",
        ":",
        "#",
    ),
    *(
        "x" * 300,
        "x" * 5000,
        "[" * 200,
        "{" * 200,
        "(" * 300,
        "a." * 300,
        "*",
        "&x",
        "!!python/object/apply:os.system [x]",
    ),
)
EXPLOSIVE = (
    *("n[1-100000]", "n[1-199999]", "n[1-9][1-9][1-9][1-9][1-9]", "n[19-100000]", "n[1-200000]x[1-9]"),
    *(
        "lognormal:9",
        "zipf:10",
        "EP99999 TP1 PP1 x1",
        "gb200-nvl72@999936",
        "h100-superpod@100000",
        "dgx-h100@8192",
    ),
)
KEYS = (
    "__class__",
    "__init__",
    "constructor",
    "__proto__",
    "name",
    "",
    " ",
    "0",
    "id",
    "a" * 200,
    f"<b>{MARK}",
    "é",
    "\x1b[2J",
)


RUNS = (" ", "\n", "\t", "a", "9", "a ", "1,", "(a", "[1-2]", "x1", "- ", "\\", "=", "_", "\u0301")


def run(random: Random) -> str:
    """Return the same over and over."""
    one = random.choice(RUNS)
    return one * (random.choice((1_000, 30_000, 200_000)) // len(one))


def number(random: Random) -> float:
    """Return a number."""
    if random.random() < 0.3:
        return random.randint(-3, 40)
    return random.choice(NUMBERS)


def text(random: Random) -> str:
    """Return a text."""
    return random.choice(TEXTS)


def value(random: Random, depth: int = 2) -> Any:
    """Return a value of any type that JSON knows."""
    kind = random.random()
    if kind < 0.4:
        return number(random)
    if kind < 0.7:
        return text(random)
    if kind < 0.85 or depth == 0:
        return random.choice((None, True, False, [], {}, [[]], [None], [{}]))
    if kind < 0.93:
        return [value(random, depth - 1) for _ in range(random.randint(0, 4))]
    return {random.choice(KEYS): value(random, depth - 1) for _ in range(random.randint(0, 3))}


def nested(random: Random) -> Any:
    """Return lists and mappings within each other."""
    found: Any = random.choice((1, "x", None))
    for _ in range(random.choice((5, 30, 63, 64, 65, 100, 300, 900))):
        found = [found] if random.random() < 0.5 else {"a": found}
    return found


def raw(random: Random, most: int = 12) -> bytes:
    """Return some bytes."""
    if random.random() < 0.4:
        size = random.choice((1, 2, 4, 8))
        at = int(
            random.choice(
                (0, 1, -1, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
            )
        )
        return (at % 2 ** (8 * size)).to_bytes(size, random.choice(("little", "big")))
    return random.randbytes(random.randint(1, most))
