"""A ``.pt`` file of ``torch.save``, without torch and without running anything that it names.

The file is a zip archive: a pickle (``data.pkl``) of the object, whose tensors are views of storages, and each
storage a member of the archive, stored as it is. Tensors are arrays over the mapped file.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import BROKEN_ZIP
from topology.base.errors import InputError, one_line

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_BROKEN = (
    *(*BROKEN_ZIP, pickle.UnpicklingError, struct.error, AttributeError, LookupError),
    *(MemoryError, OverflowError, TypeError, ValueError),
)
"""What the readers of zip archives and pickles raise on what is cut short or broken."""
_STORAGES = {
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "UntypedStorage": "uint8",
}
_UNSIGNED = frozenset({"uint16", "uint32", "uint64"})
"""Types that have no storage of their own: such tensors name the type, over a storage of bytes."""
_MAX_REPEATED = 2**24
"""Elements that a tensor may have whatever its storage has: it may repeat some of them."""


class _Storage(NamedTuple):
    """The elements of a storage, still in the file; ``bfloat16`` as the 16 bits of each."""

    values: NDArray[Any]
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
                    f"{path}: torch format before version 1.6; load it with torch and save it again with torch.save."
                )
        with zipfile.ZipFile(path) as archive:
            return _Unpickler(path, archive).load()
    except (*_BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # not there, or not ours to read
            raise
        raise InputError(f"{path}: not a complete .pt file from torch.save ({one_line(error)}).") from error


class _Unpickler(pickle.Unpickler):
    """Builds dictionaries and tensors; whatever else a pickle names is refused, and nothing is imported."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._members = {member.filename: member for member in archive.infolist()}
        roots = [name.removesuffix("data.pkl") for name in self._members if name.endswith("/data.pkl")]
        if len(roots) != 1 or any(member.compress_type for member in self._members.values()):
            raise self._refused("a zip archive, but not one that torch.save wrote")
        self._root = roots[0]
        self._bytes = np.memmap(path, np.uint8, "r")
        named = self._root + "byteorder"
        self._order: Literal["<", ">"] = (
            ">" if named in self._members and archive.read(named) == b"big" else "<"
        )
        self._functions: dict[tuple[str, str], Callable[..., Any]] = {
            ("collections", "OrderedDict"): lambda *_: {},
            ("torch", "Size"): lambda shape: shape,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: self._tensor(*arguments[:4]),
            ("torch._utils", "_rebuild_tensor_v3"): lambda storage, *arguments: self._tensor(
                self._typed(storage, arguments[5]), *arguments[:3]
            ),
        }
        pickled = archive.read(self._root + "data.pkl")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a text with an odd escape
            for opcode, argument, _ in pickletools.genops(pickled):  # checks lengths, and builds nothing
                # the unpickler makes room for as many objects as the largest index says
                if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > len(pickled):
                    raise self._refused(f"its pickle keeps an object under {argument}, beyond its length")
        super().__init__(io.BytesIO(pickled))

    def _member(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a member, still in the file."""
        name = self._root + name
        member = self._members.get(name)
        if member is None:
            raise self._refused(f"its member {name[:80]!r} is missing")
        start = member.header_offset + _LOCAL_HEADER.size
        signature, names, extra = _LOCAL_HEADER.unpack(self._bytes[member.header_offset : start].tobytes())
        start += names + extra
        if signature != b"PK\3\4" or member.flag_bits & 1 or start + member.file_size > len(self._bytes):
            raise self._refused(f"its member {name[:80]!r} is broken or encrypted")
        return np.asarray(self._bytes[start : start + member.file_size])

    def _refused(self, problem: str) -> InputError:
        return InputError(f"{self._path}: {problem}; none of its code was executed.")

    def find_class(self, module: str, name: str) -> Any:
        """Return what builds the value that a pickle names: a function of this module, or the name of a type."""
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and name in _UNSIGNED:
            return name
        if function := self._functions.get((module, name)):
            return function
        raise self._refused(f"its pickle names {module}.{name}"[:120] + ", which is not a tensor")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return a storage, ``("storage", type, key, device, elements)``."""
        match pid:
            case ("storage", str(dtype), str(key), _, int(elements)) if dtype in _STORAGES.values():
                data = self._member(f"data/{key}")
                number = np.dtype("uint16" if dtype == "bfloat16" else dtype)
                if elements * number.itemsize > len(data):
                    raise self._refused(
                        f"storage {key[:20]!r} has {len(data):,} bytes of {elements:,} elements"
                    )
                return _Storage(self._numbers(data, number), dtype)
        raise self._refused("its pickle refers to an object that is not a storage")

    def _typed(self, storage: _Storage, dtype: str) -> _Storage:
        """Return the elements of a storage of bytes."""
        if storage.dtype != "uint8" or dtype not in _UNSIGNED:
            raise self._refused(f"a tensor in it is {dtype} over {storage.dtype}"[:120])
        return _Storage(self._numbers(storage.values, np.dtype(dtype)), dtype)

    def _numbers(self, data: NDArray[Any], number: np.dtype[Any]) -> NDArray[Any]:
        complete = data[: len(data) // number.itemsize * number.itemsize]
        return complete.view(number.newbyteorder(self._order))

    def _tensor(self, storage: _Storage, offset: int, shape: Any, strides: Any) -> Any:
        """Return a view of a storage; shape, strides and first element count elements."""
        elements, size = len(storage.values), math.prod(shape)
        if len(shape) != len(strides) or any(type(n) is not int or n < 0 for n in (offset, *shape, *strides)):
            raise self._refused(
                f"a tensor in it has an impossible shape or stride ({shape}, {strides})"[:120]
            )
        end = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        if not size:
            return np.zeros(shape, storage.values.dtype)
        if end >= elements or size > max(elements, _MAX_REPEATED):
            raise self._refused(
                f"a tensor {list(shape)} in it needs more than the {elements:,} elements of its storage"
            )
        steps = [stride * storage.values.itemsize for stride in strides]
        values = np.lib.stride_tricks.as_strided(storage.values[offset:], shape, steps, writeable=False)
        return (values.astype(np.uint32) << 16).view(np.float32) if storage.dtype == "bfloat16" else values
