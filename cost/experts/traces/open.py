"""From a path to the reader of what lies there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cost.experts.traces.arrays import npy_array, npz_array
from cost.experts.traces.counts import Recording, Wanted, of_array
from cost.experts.traces.csv_file import read_csv
from cost.experts.traces.json_files import read_json, read_vllm_lines
from cost.experts.traces.sglang import read_sglang_folder, read_sglang_pt
from cost.experts.traces.trtllm_folder import is_trtllm_folder, read_trtllm_folder
from topology.base.errors import InputError

_READERS: dict[str, Callable[[Path, Wanted | None], Recording]] = {
    ".npy": lambda path, wanted: of_array(str(path), "NumPy array", npy_array(path), wanted),
    ".npz": lambda path, wanted: of_array(str(path), "NumPy archive", npz_array(path), wanted),
    ".json": read_json,
    ".jsonl": read_vllm_lines,
    ".ndjson": read_vllm_lines,
    ".csv": read_csv,
    ".pt": read_sglang_pt,
}
_HEAD_BYTES = 4096


def open_recording(text: str, wanted: Wanted | None = None) -> Recording:
    """Open the file or folder ``text``, without reading its counts where they can wait.

    ``wanted`` is what a model needs, for messages and for checks of the number of experts.

    Raises
    ------
    InputError
        If there is none, it cannot be read, or is nothing that we know; the message is one line.
    """
    try:
        return _opened(text, wanted)
    except OSError as error:
        raise InputError(f"{text}: cannot be read ({error.strerror or error}).") from error
    except RecursionError as error:
        raise InputError(f"{text}: nested too deeply to be expert loads.") from error
    except MemoryError as error:
        raise InputError(f"{text}: asks for more memory than there is.") from error


def _opened(text: str, wanted: Wanted | None) -> Recording:
    path = Path(text)
    suffix = path.suffix.lower()
    if path.is_dir() and suffix not in _READERS:
        return (read_trtllm_folder if is_trtllm_folder(path) else read_sglang_folder)(path, wanted)
    if suffix == ".safetensors":
        raise InputError(
            f"{text}: one rank's counts; give the folder, which has the others and meta_info.json."
        )
    if suffix not in _READERS:
        raise InputError(
            f"{text}: loads are read from .pt, .json, .jsonl, .npy, .npz and .csv files and TensorRT-LLM's "
            f"folder, and this one's suffix is {suffix or 'absent'}; or give lognormal:SIGMA, zipf:S or uniform."
        )
    if not path.is_file():
        what = "is not a regular file" if path.exists() else "there is no such file"
        raise InputError(f"{text}: {what}; give a file of expert loads.")
    reader = read_vllm_lines if suffix == ".json" and _is_lines(path) else _READERS[suffix]
    return reader(path, wanted)


def _is_lines(path: Path) -> bool:
    """Say whether a ``.json`` is vLLM's JSON lines under another name."""
    with path.open("rb") as file:
        return b'"record_type"' in file.read(_HEAD_BYTES)
