"""From a whole file to a broken one: by its structure where it has one, by its text and bytes where not."""

from __future__ import annotations

import copy
import csv
import io
import json
import lzma
import math
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import hostile
import yaml

Mutate = Callable[[bytes, Random], bytes]
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z0-9_.:/-]+|\"[^\"]*\"|\S")
_DEEPEST = 400


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
            found = _replaced(found, _NUMBER, random, _number_text)
        elif kind < 0.6:
            found = _replaced(found, _WORD, random, lambda r, _: hostile.text(r))
        elif kind < 0.65:
            found = _replaced(found, _WORD, random, lambda _, word: word + word)
        elif kind < 0.9:
            found = _lines(found, random)
        else:
            return mutate_bytes(found.encode(), random)
    return found.encode("utf-8", "replace")[:1_000_000]


def _number_text(random: Random, _: str) -> str:
    if random.random() < 0.03:
        return str(random.choice(hostile.LARGE))
    found = hostile.number(random)
    return f"{found:g}" if random.random() < 0.5 else str(found)


def _replaced(text: str, what: re.Pattern[str], random: Random, new: Callable[[Random, str], str]) -> str:
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


def _containers(tree: Any, found: list[Any]) -> list[Any]:
    """Return all mappings and lists that have something in them."""
    pending = [tree]
    while pending:
        one = pending.pop()
        if isinstance(one, dict | list) and one:
            found.append(one)
            pending += list(one.values() if isinstance(one, dict) else one)
        if len(found) > 4000:
            break
    return found


def mutate_tree(tree: Any, random: Random) -> Any:
    """Change a tree of mappings and lists in one to four places."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        parts = _containers(tree, [])
        if not parts or random.random() < 0.005:
            return hostile.nested(random) if random.random() < 0.5 else hostile.value(random)
        part = random.choice(parts)
        key = random.choice(list(part) if isinstance(part, dict) else range(len(part)))
        _change(part, key, parts, random)
    return tree


def _change(part: Any, key: Any, parts: list[Any], random: Random) -> None:
    kind, mapping = random.random(), isinstance(part, dict)
    if kind < 0.35:
        part[key] = _near(part[key], random)
    elif kind < 0.5:
        part[key] = hostile.value(random)
    elif kind < 0.62:
        del part[key]
    elif kind < 0.7:
        if mapping:
            part[random.choice((*hostile.KEYS, *map(str, part)))] = copy.deepcopy(part[key])
        else:
            part.insert(random.randint(0, len(part)), copy.deepcopy(part[key]))
    elif kind < 0.76:
        part[key] = [part[key]] if random.random() < 0.5 else {"a": part[key]}
    elif kind < 0.84:
        other = random.choice(parts)
        inner = random.choice(list(other.values()) if isinstance(other, dict) else other)
        part[key] = copy.deepcopy(inner)
    elif kind < 0.89 and mapping:
        part[hostile.text(random)] = part.pop(key)
    elif kind < 0.94 and not mapping:
        part *= random.choice((0, 2, 3, 20))
        del part[2000:]
    elif kind < 0.97:
        part[key] = random.choice(hostile.EXPLOSIVE + hostile.LARGE)
    else:
        part[key] = hostile.nested(random)


def _near(value: Any, random: Random) -> Any:
    """Return a value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice(
            (
                value + 1,
                value - 1,
                -value,
                0,
                value * 2,
                value * 1000,
                int(value / 2),
                float(value),
                str(value),
            )
        )
    if isinstance(value, float):
        return random.choice(
            (
                value * 1e9,
                value / 1e9,
                -value,
                0.0,
                float("nan"),
                1e308,
                int(max(-1e18, min(value, 1e18))) if not math.isnan(value) else 0,
            )
        )
    if isinstance(value, str):
        return (
            mutate_text(value.encode("utf-8", "replace"), random).decode("utf-8", "replace")
            if value
            else hostile.text(random)
        )
    return hostile.value(random)


def mutate_json(data: bytes, random: Random) -> bytes:
    """Change a JSON text by its tree, its text, or both."""
    kind = random.random()
    if kind < 0.15:
        return mutate_text(data, random)
    try:
        tree = json.loads(data)
        made = json.dumps(mutate_tree(tree, random), ensure_ascii=random.random() < 0.5)
    except (ValueError, RecursionError):
        return mutate_text(data, random)
    found = made.encode("utf-8", "surrogatepass" if random.random() < 0.1 else "replace")
    return mutate_text(found, random) if kind > 0.93 else found


def mutate_json_lines(data: bytes, random: Random) -> bytes:
    """Change one line as JSON, or the lines."""
    lines = data.split(b"\n")
    if random.random() < 0.25:
        return mutate_text(data, random)
    at = random.randrange(len(lines))
    lines[at] = mutate_json(lines[at], random)
    return b"\n".join(lines)


def mutate_yaml(data: bytes, random: Random) -> bytes:
    """Change a YAML text by its tree or its text."""
    if random.random() < 0.25:
        return mutate_text(data, random)
    try:
        tree = mutate_tree(yaml.load(data, Loader=yaml.CSafeLoader), random)
        if random.random() < 0.5:
            return json.dumps(tree, default=str).encode()  # JSON is YAML, but for its numbers
        made = yaml.dump(
            tree,
            Dumper=yaml.CSafeDumper,
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=random.random() < 0.2,
        )
        return made.encode("utf-8", "replace")
    except (ValueError, RecursionError, yaml.YAMLError):
        return mutate_text(data, random)


_TAG = re.compile(r"<[^<>]*>")
_ATTRIBUTE = re.compile(r'([\w:-]+)="([^"]*)"')


def mutate_xml(data: bytes, random: Random) -> bytes:
    """Change tags and attributes."""
    found = data.decode("utf-8", "replace")
    for _ in range(random.choice((1, 1, 2, 4))):
        kind = random.random()
        if kind < 0.5:
            found = _replaced(found, _ATTRIBUTE, random, _attribute)
        elif kind < 0.75:
            found = _replaced(found, _TAG, random, _tag)
        elif kind < 0.78:
            found = f'<!DOCTYPE a [<!ENTITY x "{"y" * 50}">]>' + found.replace('"1"', '"&x;"', 1)
        else:
            found = mutate_text(found.encode(), random).decode("utf-8", "replace")
    return found.encode("utf-8", "replace")[:1_000_000]


def _attribute(random: Random, text: str) -> str:
    name, _, value = text.partition("=")
    kind = random.randint(0, 4)
    if kind == 0:
        return ""
    if kind == 1:
        return f"{name}={value} {name}2={value}"
    made = (
        hostile.text(random)
        if kind == 2
        else str(_near(value.strip('"'), random))
        if kind == 3
        else _number_text(random, "")
    )
    return f'{name}="{made.replace("&", "&amp;").replace("<", "&lt;").replace(chr(34), "&quot;")}"'


def _tag(random: Random, text: str) -> str:
    return random.choice(
        (
            "",
            text * 2,
            text * 100,
            "<" + text[2:] if text.startswith("</") else text[:-1] + "/>",
            f"<a>{text}</a>",
            f"<!-- {text} -->",
            f"<![CDATA[{text}]]>",
        )
    )


def mutate_csv(data: bytes, random: Random) -> bytes:
    """Change cells, rows and columns."""
    if random.random() < 0.2:
        return mutate_text(data, random)
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline="")))
    except csv.Error:
        return mutate_text(data, random)
    for _ in range(random.choice((1, 1, 2, 4))):
        if not rows or not any(rows):
            break
        at = random.randrange(len(rows))
        row = rows[at]
        kind, cell = random.random(), random.randrange(len(row)) if row else 0
        if kind < 0.6 and row:
            row[cell] = random.choice(
                (hostile.text(random), _number_text(random, ""), str(_near(row[cell], random)))
            )
        elif kind < 0.7:
            rows.insert(random.randint(0, len(rows)), list(row))
        elif kind < 0.8:
            del rows[at]
        elif kind < 0.9 and row:
            del row[cell]
        else:
            for one in rows:
                one.insert(min(cell, len(one)), hostile.text(random) if one is rows[0] else "1")
    out = io.StringIO()
    csv.writer(out, lineterminator=random.choice(("\n", "\r\n"))).writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


_SHAPES = (
    "()",
    "(0,)",
    "(-1, 4)",
    "(2, 4)",
    "(1000000000, 1000000000)",
    "(4294967296, 4294967296)",
    "(2, 3, 4)",
    "(True, 4)",
    "(2.0, 4)",
    "('a', 4)",
    "((2,), 4)",
    "(99999999999999999999,)",
    "[2, 4]",
    "(1,) * 70",
    f"({'1, ' * 40})",
    "(0, 4)",
    "(4, 2)",
    "(8,)",
)
_TYPES = (
    "'<i8'",
    "'<f8'",
    "'<f4'",
    "'<f2'",
    "'|b1'",
    "'|O'",
    "'|u1'",
    "'>i4'",
    "'<c16'",
    "'<M8[s]'",
    "'|S5'",
    "'<U3'",
    "'<V8'",
    "[('a', '<i4')]",
    "[('a', '|O')]",
    "'<i3'",
    "'x'",
    "0",
    "('<i4', (2,))",
    "'<U1000000'",
    "'|V0'",
)


def mutate_npy(data: bytes, random: Random) -> bytes:
    """Change header or bytes of an array."""
    if random.random() < 0.25 or not data.startswith(b"\x93NUMPY") or len(data) < 12:
        return mutate_bytes(data, random)
    version = data[6]
    size = struct.unpack("<H" if version == 1 else "<I", data[8 : 10 if version == 1 else 12])[0]
    start = 10 if version == 1 else 12
    header, body = data[start : start + size].decode("latin-1"), data[start + size :]
    kind = random.random()
    if kind < 0.3:
        header = re.sub(
            r"'shape': *\([^)]*\)", f"'shape': {random.choice(_SHAPES)}".replace("\\", ""), header
        )
    elif kind < 0.6:
        header = re.sub(r"'descr': *'[^']*'", f"'descr': {random.choice(_TYPES)}".replace("\\", ""), header)
    elif kind < 0.7:
        header = mutate_text(header.encode(), random).decode("latin-1")
    elif kind < 0.75:
        header = header.replace("False", "True")
    else:
        body = mutate_bytes(body, random) if body else b"\0" * 64
    packed = header.encode("latin-1", "replace")[:60_000]
    return data[:6] + b"\x01\x00" + struct.pack("<H", len(packed)) + packed + body


_OPCODES = (
    b"cos\nsystem\n", b"cbuiltins\neval\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n",
    b"R", b"b", b"t", b"(", b"]", b"}", b")", b"u", b"s", b"a", b"e", b"N", b"\x88", b"\x89", b"K\x01", b"J\xff\xff\xff\xff",
    b"X\x05\x00\x00\x00touch", b"\x85", b"\x86", b"\x87", b"2", b"0", b"1", b"Q", b"\x94", b"q\x00", b"h\x00", b"j\xff\xff\xff\x7f",
    b"\x8a\x01\x05", b"\x8b\x10\x00\x00\x00" + b"\xff" * 16, b"G?\xf0\x00\x00\x00\x00\x00\x00", b"\x8f", b"\x90", b"\x91",
    b"\x93", b"\x81", b"\x92", b"I1\n", b"L1L\n", b"F1\n", b"S'a'\n", b"V\\u0041\n", b"d", b"l", b"g0\n", b"p0\n", b"i", b"o", b"Pa\n",
    b"\x96\x03\x00\x00\x00\x00\x00\x00\x00abc", b"\x97", b"\x98", b"\x95\x00\x00\x00\x00\x00\x00\x00\x00", b".", b"\x80\x05",
)  # fmt: skip


def mutate_pickle(data: bytes, random: Random) -> bytes:
    """Put opcodes in, take some out, repeat them."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at, kind = random.randint(0, len(found)), random.random()
        if kind < 0.5:
            found[at:at] = random.choice(_OPCODES) * random.choice(
                (1, 1, 1, 2, 50, 2000 if random.random() < 0.1 else 3)
            )
        elif kind < 0.8:
            found = bytearray(mutate_bytes(bytes(found), random))
        else:
            found[-1:] = random.choice(_OPCODES) + b"."
    return bytes(found[:900_000])


def mutate_zip(data: bytes, random: Random) -> bytes:
    """Change one member of an archive by what it is, names and flags, or the archive's bytes."""
    if random.random() < 0.2:
        return mutate_bytes(data, random)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except (
        zipfile.BadZipFile,
        RuntimeError,
        NotImplementedError,
        OSError,
        ValueError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
    ):
        return mutate_bytes(data, random)
    if not members:
        return mutate_bytes(data, random)
    at, kind = random.randrange(len(members)), random.random()
    name, inner = members[at]
    if kind < 0.7:
        change = (
            mutate_npy if name.endswith(".npy") else mutate_pickle if name.endswith(".pkl") else mutate_bytes
        )
        members[at] = (name, change(inner, random))
    elif kind < 0.8:
        members[at] = (
            random.choice(("../x.npy", "/tmp/x", "x/" + name, name + "\0", name.upper(), "", "a" * 70)),
            inner,
        )
    elif kind < 0.88:
        del members[at]
    elif kind < 0.94:
        members.append(members[at])
    else:
        members[at] = (name, inner + b"\0" * random.choice((1, 1000, 2_000_000)))
    out = io.BytesIO()
    how = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with (
        warnings.catch_warnings(action="ignore"),
        zipfile.ZipFile(out, "w", how) as archive,
    ):  # two members of a name
        for one, content in members:
            archive.writestr(zipfile.ZipInfo(one.replace("\0", "") or "x", (2026, 1, 1, 0, 0, 0)), content)
    found = out.getvalue()
    return mutate_bytes(found, random) if random.random() < 0.1 else found


def mutate_safetensors(data: bytes, random: Random) -> bytes:
    """Change the header or the bytes."""
    if random.random() < 0.3 or len(data) < 8:
        return mutate_bytes(data, random)
    size = struct.unpack("<Q", data[:8])[0]
    header = mutate_json(data[8 : 8 + size], random)
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


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


def pack(files: dict[str, bytes]) -> bytes:
    """Return a folder as bytes: names and contents with their lengths before them."""
    found = b""
    for name, content in files.items():
        found += struct.pack("<HI", len(name.encode()), len(content)) + name.encode() + content
    return found


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the files of :func:`pack`, as many as are whole."""
    found: dict[str, bytes] = {}
    while len(data) >= 6:
        name, size = struct.unpack("<HI", data[:6])
        found[data[6 : 6 + name].decode("utf-8", "replace")] = data[6 + name : 6 + name + size]
        data = data[6 + name + size :]
    return found


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
        files["@" + name] = random.choice((b"../canary", b"/dev/zero", b"nowhere", b".", name.encode()))
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
        _NUMBER.sub(lambda _: str(random.choice((0, 1, 2, 9, 99999, "007", "²"))), name)
        if random.random() < 0.7
        else hostile.text(random)[:40].replace("/", "_") or "x"
    )


def mutate_words(data: bytes, random: Random) -> bytes:
    """Change arguments of a command line, a word a line."""
    words = data.decode("utf-8", "surrogateescape").split("\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        at, kind = random.randrange(len(words)), random.random()
        made = hostile.text(random) if random.random() < 0.6 else _number_text(random, "")
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
    return "\n".join(words).encode("utf-8", "surrogateescape")


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
