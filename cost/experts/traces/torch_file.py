"""A ``.pt`` file of ``torch.save``, without torch and without running anything that it names.

The file is a zip archive: a pickle (``data.pkl``) of the object, whose tensors are views of storages, and each
storage a member of the archive, stored as it is. Tensors are arrays over the mapped file.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.arrays import BROKEN_ZIP
from topology.base.errors import InputError, one_line

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_BROKEN = (
    *(*BROKEN_ZIP, pickle.UnpicklingError, struct.error, AssertionError, AttributeError, LookupError),
    *(MemoryError, OverflowError, TypeError, ValueError),
)
"""What the readers of zip archives and pickles raise on what is cut short or broken."""
_KINDS = {
    "Bool": "bool",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Float": "float32",
    "Double": "float64",
}
_DTYPES = (*_KINDS.values(), "uint16", "uint32", "uint64")
_REPEATED = 2**24
"""Elements that a tensor may have whatever its storage has: it may repeat some of them."""


class _Dict(dict[Any, Any]):
    """A dictionary without the attributes that the state of a module has beside its items."""

    def __setstate__(self, state: object) -> None:
        """Leave them out."""


class _Storage(NamedTuple):
    """The bytes of a storage, and the type of its elements."""

    data: NDArray[np.uint8]
    dtype: str


def load_torch_file(path: Path) -> Any:
    """Return the object that ``torch.save`` wrote to ``path``; its tensors are NumPy arrays over the mapped file.

    Dictionaries, lists, tuples, numbers, strings and tensors on any device are read, and nothing else; every size is
    checked against the file before memory is taken.

    Raises
    ------
    InputError
        If the file is not a whole ``.pt`` in the zip form, or its pickle names anything but tensors.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_LEGACY)) == _LEGACY:
                raise InputError(
                    f"{path}: torch's form before version 1.6; load it with torch and torch.save it again."
                )
        with zipfile.ZipFile(path) as archive:
            return _Reader(path, archive).load()
    except (*_BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # not there, or not ours to read
            raise
        raise InputError(
            f"{path}: not a whole .pt file as torch.save writes it ({one_line(error)})."
        ) from error


class _Reader(pickle._Unpickler):  # noqa: SLF001 - the one in C takes the memory that a memo index claims
    """Builds dictionaries and tensors; whatever else a pickle names is refused, and nothing is imported."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self.members = {member.filename: member for member in archive.infolist()}
        roots = [name.removesuffix("data.pkl") for name in self.members if name.endswith("/data.pkl")]
        if len(roots) != 1 or any(member.compress_type for member in self.members.values()):
            raise self._refused("a zip archive, but not one that torch.save wrote")
        self.root = roots[0]
        named = self.root + "byteorder"
        self.order: Literal["<", ">"] = (
            ">" if named in self.members and archive.read(named) == b"big" else "<"
        )
        self.bytes = np.memmap(path, np.uint8, "r")
        super().__init__(io.BytesIO(archive.read(self.root + "data.pkl")))

    def find_class(self, module: str, name: str) -> Any:
        """Return what builds the value that a pickle names."""
        functions = {
            ("collections", "OrderedDict"): _Dict,
            ("torch", "Size"): lambda shape: shape,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            ("torch._utils", "_rebuild_tensor"): self._tensor,
            ("torch._utils", "_rebuild_tensor_v2"): lambda *given: self._tensor(*given[:4]),
            ("torch._utils", "_rebuild_tensor_v3"): lambda *given: self._tensor(*given[:4], dtype=given[6]),
        }
        if function := functions.get((module, name)):
            return function
        if module in ("torch", "torch.storage"):
            if name in _DTYPES:
                return name
            if name == "UntypedStorage":
                return "uint8"
            if kind := _KINDS.get(name.removesuffix("Storage")):
                return kind
        raise self._refused(f"its pickle names {module}.{name}"[:120] + ", which is no tensor")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return a storage, ``("storage", type, key, device, elements)``."""
        match pid:
            case ("storage", str(dtype), str(key), _, int(elements)):
                data = self._bytes_of(f"{self.root}data/{key}")
                if elements * self._number(dtype).itemsize > len(data):
                    raise self._refused(
                        f"storage {key[:20]!r} has {len(data):,} bytes of {elements:,} elements"
                    )
                return _Storage(data, dtype)
        raise self._refused("its pickle refers to something that is no storage")

    def _tensor(self, storage: _Storage, first: int, shape: Any, strides: Any, *, dtype: str = "") -> Any:
        """Return a view of a storage; shape, strides and first element count elements."""
        dtype = dtype or storage.dtype
        number = self._number(dtype)
        elements, size = len(storage.data) // number.itemsize, math.prod(shape)
        if len(shape) != len(strides) or any(type(n) is not int or n < 0 for n in (first, *shape, *strides)):
            raise self._refused(
                f"a tensor in it has an impossible shape or stride ({shape}, {strides})"[:120]
            )
        last = first + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        if not size:
            return np.zeros(shape, number)
        if last >= elements or size > max(elements, _REPEATED):
            raise self._refused(
                f"a tensor {list(shape)} in it needs more than the {elements:,} elements of its storage"
            )
        flat = storage.data[: elements * number.itemsize].view(number)
        values = np.lib.stride_tricks.as_strided(
            flat[first:], shape, [stride * number.itemsize for stride in strides], writeable=False
        )
        return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else values

    def _number(self, dtype: str) -> np.dtype[Any]:
        if dtype not in _DTYPES:
            raise self._refused(f"a tensor in it is of type {dtype}"[:120])
        return np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder(self.order)

    def _bytes_of(self, name: str) -> NDArray[np.uint8]:
        member = self.members.get(name)
        if member is None:
            raise self._refused(f"its member {name[:80]!r} is missing")
        start = member.header_offset + _LOCAL_HEADER.size
        signature, names, extra = _LOCAL_HEADER.unpack(self.bytes[member.header_offset : start].tobytes())
        start += names + extra
        if signature != b"PK\3\4" or member.flag_bits & 1 or start + member.file_size > len(self.bytes):
            raise self._refused(f"its member {name[:80]!r} is broken or encrypted")
        return np.asarray(self.bytes[start : start + member.file_size])

    def _refused(self, problem: str) -> InputError:
        return InputError(f"{self.path}: {problem}; nothing in it was run.")
