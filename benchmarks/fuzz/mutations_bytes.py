"""Bytes and lines of text that are changed as what they are: flipped, cut, repeated, replaced by what is hostile."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import hostile

Mutate = Callable[[bytes, Random], bytes]
NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z0-9_.:/-]+|\"[^\"]*\"|\S")


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Flip, cut, repeat, overwrite."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        at, kind = random.randint(0, len(found)), random.randint(0, 7)
        end = min(len(found), at + random.choice((1, 2, 4, 8, 16, 64, 300)))
        if kind == 0 and found:
            found[at % len(found)] ^= 1 << random.randint(0, 7)
        elif kind == 1:
            found[at:end] = hostile.raw(random, max(1, end - at))[: end - at]
        elif kind == 2:
            del found[at:end]
        elif kind == 3:
            found[at:at] = found[at:end] * random.choice((1, 2, 30))
        elif kind == 4:
            found[at:at] = hostile.raw(random)
        elif kind == 5:
            del found[at:]
        elif kind == 6:
            made = hostile.raw(random, 8)
            found[at : at + len(made)] = made
        else:
            other = random.randint(0, len(found))
            found[at:end] = found[other : other + (end - at)]
    return bytes(found[:1_000_000])


def mutate_text(data: bytes, random: Random) -> bytes:
    """Change words, numbers and lines."""
    found = data.decode("utf-8", "replace")
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        kind = random.random()
        if kind < 0.35:
            found = replaced(found, NUMBER, random, number_text)
        elif kind < 0.6:
            found = replaced(found, _WORD, random, lambda r, _: hostile.text(r))
        elif kind < 0.65:
            found = replaced(found, _WORD, random, lambda _, word: word + word)
        elif kind < 0.89:
            found = _lines(found, random)
        elif kind < 0.9:  # what goes back over a long run takes its square
            found = replaced(found, _WORD, random, lambda r, word: word + hostile.run(r))
        else:
            return mutate_bytes(found.encode("utf-8", "replace"), random)
    return found.encode("utf-8", "replace")[:1_000_000]


def number_text(random: Random, _: str) -> str:
    """Return a number as people and programs write it."""
    if random.random() < 0.03:
        return str(random.choice(hostile.LARGE))
    found = hostile.number(random)
    return f"{found:g}" if random.random() < 0.5 else str(found)


def replaced(text: str, what: re.Pattern[str], random: Random, new: Callable[[Random, str], str]) -> str:
    """Return a text in which one match of ``what`` is another."""
    found = list(what.finditer(text))
    if not found:
        return text + new(random, "")
    one = random.choice(found)
    return text[: one.start()] + new(random, one[0]) + text[one.end() :]


def _lines(text: str, random: Random) -> str:
    lines = text.split("\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randint(0, 6)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        lines[at] = lines[at][: random.randint(0, len(lines[at]))]
    elif kind == 4:
        lines = lines[: at + 1]
    elif kind == 5:
        lines[at] = random.choice((" ", "\t", "#", "- ")) + lines[at]
    else:
        lines[at] += (
            random.choice((" ", ",", ":", "]", "}", '"', "\\", " # x", "\r", "\x00"))
            + hostile.text(random)[:50]
        )
    return "\n".join(lines)
