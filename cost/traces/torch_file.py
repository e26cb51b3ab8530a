"""A ``.pt`` file of ``torch.save``, without torch and without running anything that it names.

The file is a zip archive: a pickle (``data.pkl``) of the object, whose tensors are views of storages, and each
storage a member of the archive, stored as it is. Tensors stay in the file (`FileArray`) until they are read.
"""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cost.traces.file_array import FileArray, Place
from cost.traces.pickle_machine import Global, PickleRefusedError, load_inert
from cost.traces.recording import printable
from topology.errors import InputError

MOST_PICKLE_BYTES = 64 * 2**20
"""Of ``data.pkl``: 5 GB of SGLang's per-token records have about 30 MB."""
_MOST_MEMBERS = 1_000_000
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_BROKEN = (
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
)
_STORAGES = {
    "BoolStorage": "b1",
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "i2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "HalfStorage": "f2",
    "BFloat16Storage": "u2",
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "UntypedStorage": "u1",
}
_DTYPES = {
    "bool": "b1",
    "uint8": "u1",
    "int8": "i1",
    "int16": "i2",
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
    "int64": "i8",
    "uint64": "u8",
    "float16": "f2",
    "bfloat16": "u2",
    "float32": "f4",
    "float64": "f8",
}
_TENSORS = {"_rebuild_tensor": 4, "_rebuild_tensor_v2": 6, "_rebuild_tensor_v3": 7}


@dataclass(frozen=True)
class _Storage:
    """Where a storage lies, and the type of its elements."""

    place: Place
    dtype: np.dtype[Any]
    bfloat16: bool


def load_torch_file(path: Path) -> Any:
    """Return the object that ``torch.save`` wrote to ``path``; its tensors are `FileArray`.

    Dicts, lists, tuples, numbers, strings and tensors on any device are read, and nothing else; every size is
    checked against the file before memory is taken. ``load_torch_file(path)["key"].whole()`` is a NumPy array.

    Raises
    ------
    InputError
        If the file is not a whole ``.pt`` in the zip form, or its pickle names anything but tensors.
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(_LEGACY))
        if head.startswith(_LEGACY):
            raise InputError(
                f"{path}: torch's form before version 1.6; load it with torch and torch.save it again as it is now."
            )
        with zipfile.ZipFile(path) as archive:
            return _Reader(path, archive).load()
    except PickleRefusedError as error:
        raise InputError(f"{path}: {printable(str(error))}; nothing in it was run.") from error
    except (*_BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # not there, or not ours to read
            raise
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{path}: not a whole .pt file as torch.save writes it ({reason}).") from error


class _Reader:
    """One archive: its members, its byte order and the storages that were asked for."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self.archive = archive
        members = archive.infolist()
        if len(members) > _MOST_MEMBERS:
            raise PickleRefusedError(f"{len(members):,} members, more than any recording")
        self.members = {member.filename: member for member in members}
        names = [name for name in self.members if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(names) != 1 or len(self.members) != len(members) or any(map(_leads_out, self.members)):
            raise PickleRefusedError("a zip archive, but not one that torch.save wrote")
        self.root = names[0].removesuffix("data.pkl")
        self.order = self._byte_order()
        self.storages: dict[str, Place] = {}
        self.size = path.stat().st_size

    def load(self) -> Any:
        data = self._small("data.pkl", MOST_PICKLE_BYTES)
        found, end = load_inert(data, call=self._call, persistent=self._persistent)
        if end != len(data):
            raise PickleRefusedError("more bytes after the end of its pickle")
        return found

    def _small(self, name: str, most: int) -> bytes:
        """Return a member of ``most`` bytes at most, whatever its header says."""
        with self.archive.open(self.root + name) as member:
            data = member.read(most + 1)
        if len(data) > most:
            raise PickleRefusedError(f"its {name} has more than {most:,} bytes")
        return data

    def _byte_order(self) -> str:
        if self.root + "byteorder" not in self.members:
            return "<"
        order = self._small("byteorder", 16)
        if order not in {b"little", b"big"}:
            raise PickleRefusedError(f"byte order {order!r}")
        return "<" if order == b"little" else ">"

    def _call(self, function: Global, arguments: tuple[Any, ...]) -> Any:
        if function == Global("collections", "OrderedDict") and not arguments:
            return {}
        if function == Global("torch", "Size") and len(arguments) == 1 and isinstance(arguments[0], tuple):
            return arguments[0]
        if function.module == "torch._utils":
            if function.name in _TENSORS and len(arguments) >= _TENSORS[function.name]:
                return self._tensor(function.name, arguments)
            if function.name == "_rebuild_parameter" and len(arguments) == 3:
                return arguments[0]
        raise PickleRefusedError(f"its pickle calls {function}, which is no tensor")

    def _tensor(self, function: str, arguments: tuple[Any, ...]) -> FileArray:
        storage, first, shape, strides = arguments[:4]
        if not isinstance(storage, _Storage) or type(shape) is not tuple or type(strides) is not tuple:
            raise PickleRefusedError("a tensor in its pickle has no storage or no shape")
        dtype, bfloat16 = storage.dtype, storage.bfloat16
        if function == "_rebuild_tensor_v3":
            dtype, bfloat16 = self._dtype(arguments[6], _DTYPES, "torch")
        return FileArray(storage.place, dtype, shape, strides, first, bfloat16)

    def _dtype(self, name: object, known: dict[str, str], module: str) -> tuple[np.dtype[Any], bool]:
        if (
            not isinstance(name, Global)
            or name.name not in known
            or name.module not in {module, "torch.storage"}
        ):
            raise PickleRefusedError(f"a tensor in it is of type {str(name)[:80]}, which holds no counts")
        return np.dtype(self.order + known[name.name]), "bfloat16" in name.name.lower()

    def _persistent(self, found: object) -> _Storage:
        """Read ``("storage", type, key, device, elements)``."""
        if not isinstance(found, tuple) or len(found) != 5 or found[0] != "storage":
            raise PickleRefusedError("its pickle refers to something that is no storage")
        _, kind, key, _, elements = found
        dtype, bfloat16 = self._dtype(kind, _STORAGES, "torch")
        if not isinstance(key, str) or type(elements) is not int or elements < 0:
            raise PickleRefusedError("its pickle refers to a storage without name or size")
        if key not in self.storages:
            self.storages[key] = self._place(self.root + "data/" + key)
        place = self.storages[key]
        if elements * dtype.itemsize > place.size:
            raise PickleRefusedError(
                f"storage {key[:20]!r} has {place.size:,} bytes of {elements:,} elements"
            )
        return _Storage(place, dtype, bfloat16)

    def _place(self, name: str) -> Place:
        member = self.members.get(name)
        if member is None:
            raise PickleRefusedError(f"its member {name[:80]!r} is missing")
        if member.compress_type != zipfile.ZIP_STORED:
            return Place(self.path, 0, member.file_size, name)
        with self.path.open("rb") as file:
            file.seek(member.header_offset)
            signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        offset = member.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
        if signature != b"PK\3\4" or member.flag_bits & 1 or offset + member.file_size > self.size:
            raise PickleRefusedError(f"its member {name[:80]!r} is broken or encrypted")
        return Place(self.path, offset, member.file_size)


def _leads_out(name: str) -> bool:
    return name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/")
