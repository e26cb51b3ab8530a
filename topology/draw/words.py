"""Names and counts of many things in few words."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_RANGES = 3


def plural(count: int, word: str) -> str:
    """Return "1 leaf", "1,024 leaves"."""
    several = {"leaf": "leaves"}.get(word, f"{word}s")
    return f"{count:,} {word if count == 1 else several}"


def ranges(numbers: Sequence[int], head: str = "d") -> str:
    """Return "d1 to d5, d7" for sorted numbers, at most three such parts."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [f"{head}{a}" if a == b else f"{head}{a} to {head}{b}" for a, b in runs]
    more = len(texts) - _MOST_RANGES
    return ", ".join(texts[:_MOST_RANGES]) + (", ..." if more > 0 else "")


def common_head(names: Sequence[str]) -> str:
    """Return what ids of ours have in common before their last dot ("f.p0"), or nothing."""
    heads = {name.rpartition(".")[0] for name in names}
    return heads.pop() if len(heads) == 1 else ""


def ids_text(names: Sequence[str]) -> str:
    """Return "f.s0 to f.s8", or the one name."""
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def broken_lines(text: str) -> list[str]:
    """Break "a x b = c" before the sign, to fit a narrow place."""
    left, sign, right = text.partition(" = ")
    return [left, f"= {right}"] if sign else [left]
