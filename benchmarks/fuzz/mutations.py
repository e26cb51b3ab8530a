"""From a whole input to a broken one: by its form, its words or its names."""

from __future__ import annotations

import json
from functools import cache
from random import Random

import hostile
from mutations_archives import mutate_npy, mutate_safetensors, mutate_zip, pack, unpack
from mutations_bytes import NUMBER, Mutate, mutate_bytes, mutate_text, number_text
from mutations_trees import mutate_csv, mutate_json, mutate_json_lines, mutate_xml, mutate_yaml

FORMS: dict[str, Mutate] = {
    "text": mutate_text,
    "bytes": mutate_bytes,
    "json": mutate_json,
    "jsonl": mutate_json_lines,
    "yaml": mutate_yaml,
    "xml": mutate_xml,
    "csv": mutate_csv,
    "npy": mutate_npy,
    "zip": mutate_zip,
    "safetensors": mutate_safetensors,
}


def mutate_folder(data: bytes, random: Random) -> bytes:
    """Change one file by its ending, or which files there are."""
    files = unpack(data)
    if not files:
        return data
    name, kind = random.choice(list(files)), random.random()
    if kind < 0.8:
        files[name] = FORMS[_ENDINGS.get(name.rpartition(".")[2], "bytes")](files[name], random)
    elif kind < 0.88:
        del files[name]
    elif kind < 0.94:
        files[_renamed(name, random)] = files[name]
    else:
        files["@" + name] = random.choice(
            (b"../canary", b"/dev/zero", b"nowhere", b".", name.encode("utf-8", "replace"))
        )
    return pack(files)


_ENDINGS = {
    "json": "json",
    "yaml": "yaml",
    "csv": "csv",
    "npy": "npy",
    "npz": "zip",
    "pt": "zip",
    "safetensors": "safetensors",
    "jsonl": "jsonl",
}


def _renamed(name: str, random: Random) -> str:
    return (
        NUMBER.sub(lambda _: str(random.choice((0, 1, 2, 9, 99999, "007", "²"))), name)
        if random.random() < 0.7
        else hostile.text(random)[:40].replace("/", "_") or "x"
    )


def mutate_words(data: bytes, random: Random) -> bytes:
    """Change arguments of a command line, a word a line."""
    words = data.decode("utf-8", "surrogateescape").split("\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        at, kind = random.randrange(len(words)), random.random()
        made = hostile.text(random) if random.random() < 0.6 else number_text(random, "")
        if kind < 0.5:
            words[at] = made.replace("\n", " ")
        elif kind < 0.6:
            del words[at]
        elif kind < 0.7:
            words.insert(at, words[random.randrange(len(words))])
        elif kind < 0.9:
            words += [random.choice(_options()), made.replace("\n", " ")]
        else:
            words[at] = (
                mutate_text(words[at].encode("utf-8", "replace"), random)
                .decode("utf-8", "replace")
                .replace("\n", " ")
            )
        if not words:
            break
    found = "\n".join(words)
    try:
        return found.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a pair, which stands for no byte
        return found.encode("utf-8", "replace")


@cache
def _options() -> tuple[str, ...]:
    """Return every option of every command."""
    from rackplan.cli import COMMANDS
    from rackplan.options import flat

    hints = [
        one.annotation
        for command in COMMANDS.values()
        for one in flat(command).__signature__.parameters.values()
    ]  # type: ignore[attr-defined]
    found = {
        name
        for hint in hints
        for part in getattr(hint, "__metadata__", ())
        for name in getattr(part, "param_decls", None) or ()
    }
    return tuple(sorted(name.split("/")[0] for name in found if name.startswith("-")))


def mutate_names(data: bytes, random: Random) -> bytes:
    """Put another hostile name in."""
    _, what = json.loads(data)
    made = (
        hostile.text(random)
        if random.random() < 0.7
        else "".join(random.choice("<>&\"'=+@;|{}[]()#%$\\ab\x1b\u202e é") for _ in range(12))
    )
    return json.dumps([made[:300] or "x", what]).encode()


FORMS |= {"folder": mutate_folder, "words": mutate_words, "names": mutate_names}
