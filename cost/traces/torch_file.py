"""A ``.pt`` file of ``torch.save``, without torch and without running anything that it names.

The file is a zip archive: a pickle (``data.pkl``) of the object, whose tensors are views of storages, and each
storage a member of the archive, stored as it is. Tensors stay in the file (`FileArray`) until they are read.
"""

from __future__ import annotations

import io
import pickletools
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from cost.traces.arrays import BROKEN_ZIP, FileArray, Place
from topology.errors import InputError, one_line
from topology.limits import (
    PICKLE_BYTES,
    PICKLE_CONTAINERS,
    PICKLE_GROWTH,
    PICKLE_INT_BYTES,
    PICKLE_OPCODES,
    ZIP_MEMBERS,
)

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_BROKEN = (*BROKEN_ZIP, ValueError, struct.error)
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
_STORAGES = {f"{kind}Storage": name for kind, name in _KINDS.items()} | {"UntypedStorage": "uint8"}
_DTYPES = {name: name for name in (*_KINDS.values(), "uint16", "uint32", "uint64")}
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
        raise InputError(f"{path}: {error}; nothing in it was run.") from error
    except (*_BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # not there, or not ours to read
            raise
        raise InputError(
            f"{path}: not a whole .pt file as torch.save writes it ({one_line(error)})."
        ) from error


class _Reader:
    """One archive: its members, its byte order and the storages that were asked for."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self.archive = archive
        members = archive.infolist()
        if len(members) > ZIP_MEMBERS:
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
        grown = max(2**20, PICKLE_GROWTH * self.size)
        data = self._small("data.pkl", min(PICKLE_BYTES, grown))
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

    def _byte_order(self) -> Literal["<", ">"]:
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
            kind = name if isinstance(name, Global) else type(name).__name__
            raise PickleRefusedError(f"a tensor in it is of type {kind}, which holds no counts")
        dtype = known[name.name]
        number = np.dtype("uint16" if dtype == "bfloat16" else dtype)
        return number.newbyteorder(self.order), dtype == "bfloat16"

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


# A pickle read by a machine that knows only inert opcodes: nothing named in it is imported or called. Python's own
# unpickler can be restricted, but it still sets attributes, and allocates what the file asks for. Opcodes and their
# arguments are taken apart by Python's `pickletools`; what writes data alone is here, all else is refused by name.


class PickleRefusedError(Exception):
    """The pickle is broken, or asks for more than data; the message completes "FILE: ..."."""


@dataclass(frozen=True)
class Global:
    """The name of a class or function that the pickle mentions; only a name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"[:80]


_MARK = object()
"""Where a list of arguments begins on the stack."""
_KEYS = (str, int, float, bool, type(None), bytes)
_VALUES = (
    *("BININT1", "BININT2", "BININT", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINSTRING", "BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
"""Opcodes whose argument is the value."""


def load_inert(
    data: bytes,
    *,
    call: Callable[[Global, tuple[Any, ...]], Any],
    persistent: Callable[[Any], Any],
) -> tuple[Any, int]:
    """Return the object of the pickle in ``data``, and where the pickle ends.

    ``call(name, arguments)`` and ``persistent(id)`` build what the pickle does not spell out in plain data;
    they refuse what they do not know by raising `PickleRefusedError`. A mention of a global is a `Global`.

    Raises
    ------
    PickleRefusedError
        If the pickle is cut short or broken, has an opcode that could run code, or is too large.
    """
    machine, stream = _Machine(call, persistent), io.BytesIO(data)
    try:
        for _ in range(PICKLE_OPCODES):
            name, reader = _opcode(stream)
            if name == "STOP":
                return machine.pop(), stream.tell()
            if name not in machine.does:
                raise PickleRefusedError(f"its pickle has the opcode {name}, which is not plain data")
            machine.does[name](None if reader is None else reader(stream))
    except ValueError as error:  # pickletools' own
        raise PickleRefusedError(
            f"cut short or broken at byte {stream.tell()} of its pickle ({one_line(error)})"
        ) from error
    except (IndexError, KeyError, TypeError, OverflowError) as error:
        raise PickleRefusedError(f"broken at byte {stream.tell()} of its pickle") from error
    raise PickleRefusedError(f"its pickle has more than {PICKLE_OPCODES:,} opcodes")


_READERS: dict[bytes, tuple[str, Callable[[IO[bytes]], Any] | None]] = {
    opcode.code.encode("latin-1"): (opcode.name, None if opcode.arg is None else opcode.arg.reader)
    for opcode in pickletools.opcodes
}


def _two_lines(stream: IO[bytes]) -> str:
    """Read the names of module and function, as they stand there."""
    names = [stream.readline() for _ in range(2)]
    if not all(name.endswith(b"\n") for name in names):
        raise ValueError("no newline found")
    return b" ".join(name[:-1] for name in names).decode("utf-8")


_READERS[b"c"] = "GLOBAL", _two_lines


def _opcode(stream: IO[bytes]) -> tuple[str, Callable[[IO[bytes]], Any] | None]:
    """Return the next opcode and what reads its argument, which is not read of one that is refused."""
    code = stream.read(1)
    if not code:
        raise ValueError("pickle exhausted before seeing STOP")
    if code not in _READERS:
        raise ValueError(f"opcode {code!r} unknown")
    return _READERS[code]


class _Machine:
    """The stack, the memo, and what each opcode does to them."""

    def __init__(
        self, call: Callable[[Global, tuple[Any, ...]], Any], persistent: Callable[[Any], Any]
    ) -> None:
        self.call = call
        self.persistent = persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0
        push = self.stack.append
        self.does: dict[str, Callable[[Any], object]] = {
            "PROTO": self._protocol,
            "FRAME": lambda _: None,
            **dict.fromkeys(_VALUES, push),
            **dict.fromkeys(("LONG1", "LONG4"), self._long),
            "NONE": lambda _: push(None),
            "NEWTRUE": lambda _: push(True),
            "NEWFALSE": lambda _: push(False),
            "MARK": lambda _: push(_MARK),
            "POP": lambda _: self.stack.pop(),
            "POP_MARK": lambda _: self._items(),
            "DUP": lambda _: push(self.stack[-1]),
            "EMPTY_DICT": lambda _: self._container({}),
            "EMPTY_LIST": lambda _: self._container([]),
            "EMPTY_SET": lambda _: self._container(set()),
            "EMPTY_TUPLE": lambda _: self._container(()),
            "TUPLE1": lambda _: self._tuple(1),
            "TUPLE2": lambda _: self._tuple(2),
            "TUPLE3": lambda _: self._tuple(3),
            "TUPLE": lambda _: self._container(tuple(self._items())),
            "LIST": lambda _: self._container(self._items()),
            "APPEND": lambda _: self._extend([self.pop()]),
            "APPENDS": lambda _: self._extend(self._items()),
            "SETITEM": lambda _: self._set_items([self.pop(), self.pop()][::-1]),
            "SETITEMS": lambda _: self._set_items(self._items()),
            "GLOBAL": lambda names: push(Global(*names.split(" ", 1))),
            "STACK_GLOBAL": self._stack_global,
            "REDUCE": self._reduce,
            "BUILD": self._build,
            "BINPERSID": lambda _: push(self.persistent(self.pop())),
            "MEMOIZE": lambda _: self._put(len(self.memo)),
            **dict.fromkeys(("BINPUT", "LONG_BINPUT"), self._put),
            **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda place: push(self.memo[place])),
        }

    def pop(self) -> Any:
        """Take the value on top of the stack."""
        value = self.stack.pop()
        if value is _MARK:
            raise TypeError
        return value

    @staticmethod
    def _protocol(version: int) -> None:
        if version > 5:
            raise PickleRefusedError(f"pickle protocol {version}, and there are 0 to 5")

    def _long(self, value: int) -> None:
        if (size := (value.bit_length() + 7) // 8) > PICKLE_INT_BYTES:
            raise PickleRefusedError(f"a whole number of {size:,} bytes in its pickle")
        self.stack.append(value)

    def _tuple(self, size: int) -> None:
        self._container(tuple([self.pop() for _ in range(size)][::-1]))

    def _items(self) -> list[Any]:
        """Take what stands above the last mark, and the mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise IndexError

    def _count(self) -> None:
        self.containers += 1
        if self.containers > PICKLE_CONTAINERS:
            raise PickleRefusedError(
                f"its pickle has more than {PICKLE_CONTAINERS:,} lists, tuples and dicts"
            )

    def _container(self, value: object) -> None:
        self._count()
        self.stack.append(value)

    def _put(self, place: int) -> None:
        self._count()
        self.memo[place] = self.stack[-1]

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise TypeError
        target.extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise TypeError
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, _KEYS):  # hashing a tuple nested deeply enough crashes Python
                raise PickleRefusedError(f"a key in its pickle is a {type(key).__name__}")
            target[key] = value

    def _stack_global(self, _: object) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError
        self.stack.append(Global(module, name))

    def _reduce(self, _: object) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise PickleRefusedError("its pickle calls what is no function")
        self._container(self.call(function, arguments))

    def _build(self, _: object) -> None:
        # attributes of a dict (a module's state_dict has them) say nothing to us; of anything else, unknown
        self.pop()
        if not isinstance(self.stack[-1], dict):
            raise PickleRefusedError("its pickle has the opcode BUILD on what is no dict")
