"""Arrays, pickles, archives and folders of files: headers, opcodes, members and names."""

from __future__ import annotations

import io
import lzma
import re
import struct
import warnings
import zipfile
import zlib
from random import Random

from mutations_bytes import mutate_bytes, mutate_text
from mutations_trees import mutate_json

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
        header = mutate_text(header.encode("utf-8", "replace"), random).decode("latin-1")
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


def pack(files: dict[str, bytes]) -> bytes:
    """Return a folder as bytes: names and contents with their lengths before them."""
    found = b""
    for name, content in files.items():
        raw = name.encode("utf-8", "replace")
        found += struct.pack("<HI", len(raw), len(content)) + raw + content
    return found


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the files of :func:`pack`, as many as are whole."""
    found: dict[str, bytes] = {}
    while len(data) >= 6:
        name, size = struct.unpack("<HI", data[:6])
        found[data[6 : 6 + name].decode("utf-8", "replace")] = data[6 + name : 6 + name + size]
        data = data[6 + name + size :]
    return found
