"""Output of commands: text without control sequences, one JSON object, and result files written together."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackplan.progress import hide
from topology.base.errors import InputError, printable, spelled
from topology.base.files import require_folder, require_place, write_folder, write_whole

if TYPE_CHECKING:
    from placement.fleet.fleet import Fleet
    from placement.migrate.replan import Replanned
    from placement.plan import Plan
    from rackplan.report.doc import Doc

_LONGEST_NAME = 120
_HEAD_BYTES = 4096
_VOUCHERS = ("plan.json", "fleet.json", "compare.json")
"""Result files whose ``schema_version`` marks their folder as written by rackplan."""
RESULTS = ("plan.json", "report.html", "topology.svg", "moves.json")
"""Files of a plan."""
FLEET_RESULTS = ("fleet.json", "report.html")
"""Files of a fleet, beside those of its plans."""


def steady_streams() -> None:
    """Make output streams robust against closed pipes and missing characters."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - as long as we run
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show(doc: Doc, *, json: bool, notes: Sequence[str] = (), details: bool = True) -> None:
    """Print a result on standard output: its data as one object, or as text (all of it with ``details``).

    ``notes`` on what was asked go to standard error, and into the object.
    """
    _tell(notes)
    if json:
        from rackplan.report.doc import Note

        sys.stdout.writelines(_json_parts(doc.with_blocks(*(Note(f"{text}.") for text in notes)).data))
    else:
        from rackplan.report.text import text as text_of

        sys.stdout.write(text_of(doc, details=details))


def print_file(text: str, doc: Doc, *, json: bool, notes: Sequence[str] = ()) -> None:
    """Print the content of a file on standard output; with ``json`` its document, which has the text."""
    if json:
        show(doc, json=True, notes=notes)
        return
    _tell(notes)
    sys.stdout.write(text)


def _tell(notes: Sequence[str]) -> None:
    hide()
    for text in notes:
        print_error(spelled(f"note: {text}."))


def print_schema(name: str) -> None:
    """Print the JSON Schema of a command's output, or of a file.

    Raises
    ------
    InputError
        If nothing of that name has one.
    """
    from rackplan.report.schema import json_schema

    text = json.dumps(json_schema(name), indent=2)
    hide()
    sys.stdout.write(f"{text}\n")


def json_text(data: Mapping[str, Any]) -> str:
    """Return one object in strict JSON, in ASCII."""
    return "".join(_json_parts(data))


def _json_parts(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of one object, some of it at a time: there may be 200,000 links in it."""
    parts = json.JSONEncoder(indent=2, allow_nan=False).iterencode(data)
    while some := list(islice(parts, 10_000)):
        yield "".join(some)
    yield "\n"


def print_error(text: str) -> None:
    """Print one line on standard error, after the name of the program."""
    hide()
    sys.stderr.write(f"rackplan: {printable(' '.join(text.split()))}\n")


def default_output(name: str) -> Path:
    """Return the default results folder: ``out/deepseek-v3-on-gb200-nvl72``."""
    plain = re.sub(r"[^\w.@+-]+", "-", name.strip(), flags=re.ASCII).strip("-.")
    return Path("out") / (plain[:_LONGEST_NAME] or "plan")


def _require_ours(folder: Path, names: Sequence[str]) -> None:
    """Reject a folder whose files of these ``names`` nobody vouches for: they may be somebody else's.

    Raises
    ------
    InputError
        If one of them is there and no file of results with a version of our schema is beside it.
    """
    taken = [name for name in names if (folder / name).is_file()]
    vouchers = {*_VOUCHERS, *(name for name in names if name.endswith(".json"))}
    if taken and not any(_vouches(folder / name) for name in vouchers):
        raise InputError(
            f"-o {folder}: {folder / taken[0]} exists and was not written by rackplan; choose another -o, or move it."
        )


def _vouches(path: Path) -> bool:
    """Whether a file is a result of ours."""
    try:
        with path.open("rb") as file:
            return b'"schema_version"' in file.read(_HEAD_BYTES)
    except OSError:
        return False


def require_results(path: Path, names: Sequence[str]) -> Path:
    """Check the results folder before computing; existing ``names`` are replaced if rackplan wrote them.

    Raises
    ------
    InputError
        If it cannot be written to, or there are files of these names and no result of ours beside them.
    """
    require_folder(path, names)
    _require_ours(path, names)
    return path


def require_form(path: Path | None, *endings: str) -> None:
    """Reject a path without one of the ``endings``, before computing.

    Raises
    ------
    InputError
        If it ends otherwise.
    """
    if path is not None and path.suffix.lower() not in endings:
        *others, last = endings
        listed = f"{', '.join(others)} or {last}" if others else last
        raise InputError(f"-o {path}: the file suffix sets the format: {listed}.")


def command_line() -> str:
    """Return the running command in shell syntax."""
    return shlex.join(["rackplan", *sys.argv[1:]])


def is_page(path: Path | None) -> bool:
    """Whether a path asks only for the report (``FILE.html``), not for a results folder."""
    return path is not None and path.suffix.lower() == ".html" and not path.is_dir()


def require_output(path: Path, *, ours: Sequence[str]) -> Path:
    """Check the path of a report or a results folder (:func:`require_results`) before computing."""
    if not is_page(path):
        return require_results(path, ours)
    require_place(path)
    return path


Forms = Mapping[str, "str | Callable[[], str]"]
"""Text of each result file by name, or a function that returns it."""


def output_forms(path: Path | None, *names: str) -> Callable[[Forms], list[str]] | None:
    """Return a function that writes the files ``names`` of a result into a folder, or only the one in ``path``.

    It returns the paths; None where no file is wanted.

    Raises
    ------
    InputError
        If ``path`` ends as a file of another form, or cannot be written.
    """
    if path is None:
        return None
    endings = {Path(name).suffix: name for name in names}
    if whole := path.is_dir() or not path.suffix:
        require_results(path, names)
    else:
        require_form(path, *endings)
        require_place(path)

    def write(forms: Forms) -> list[str]:
        wanted = list(forms) if whole else [endings[path.suffix.lower()]]
        texts = [(name, forms[name]) for name in wanted]
        made = {name: (text if isinstance(text, str) else text()).encode() for name, text in texts}
        if whole:
            write_folder(path, made)
            return [str(path / name) for name in made]
        write_whole(path, made[wanted[0]])
        return [str(path)]

    return write


def written(
    path: Path | None, name: str, *more: str, json: bool, html: str = "", details: bool = True
) -> Callable[..., None]:
    """Return a function that shows a document and writes it as ``NAME.json``, as a page, and as ``more`` files.

    The page is ``html`` (``NAME.html``). Where they go is as :func:`output_forms` has it.

    Raises
    ------
    InputError
        As :func:`output_forms`, or if a plan or another result is there; before anything is computed.
    """
    data, html = f"{name}.json", html or f"{name}.html"
    if path is not None and path.name in {*RESULTS, *_VOUCHERS} - {data, html} and path.is_file():
        raise InputError(f"-o {path}: it holds another result; choose another -o.")
    write = output_forms(path, *more, data, html)

    def finish(doc: Doc, forms: Forms | None = None, notes: Sequence[str] = ()) -> None:
        if write is not None:
            from rackplan.report.doc import Note

            usual = {data: lambda: json_text(doc.data), html: lambda: page_of(doc)}
            paths = write({**usual, **(forms or {})})
            doc = doc.with_blocks(Note(", ".join(paths), kind="written"))
        show(doc, json=json, notes=notes, details=details)

    return finish


def page_of(doc: Doc, /, **digests: str) -> str:
    """Return the page of a document, with the command that made it and the digests of what it was made from."""
    from rackplan.report.doc import Code
    from rackplan.report.page import page

    rows = "".join(f"\n# SHA-256 of {name}: {digest}" for name, digest in digests.items())
    made = Code("", f"{command_line()}{rows}", "How it was made")
    return page(replace(doc, details=[*doc.details, made]))


def write_plan(
    plan: Plan,
    doc: Doc,
    path: Path,
    sha256: dict[str, str],
    *,
    moved: Replanned | None = None,
) -> dict[str, str]:
    """Write the plan, its picture and its page into a folder, or only the page; return paths by kind.

    Of a re-plan ``moved`` is all of it: its moves are a file more. Picture and page carry the digest of the plan
    beside them.
    """
    from placement.migrate.moves_file import moves_to_dict
    from placement.plans.writing import plan_to_dict, plan_to_json
    from rackplan.report.results import svg

    command, drawing = command_line(), svg(plan) or ""

    def report(sha256: Mapping[str, str]) -> bytes:
        return page_of(doc, **sha256).encode()

    if is_page(path):
        write_whole(path, report(sha256))
        return {"report": str(path)}
    made = plan_to_json(plan_to_dict(plan, command=command, sha256=sha256)).encode()
    mark = hashlib.sha256(made).hexdigest()
    files = {
        "topology.svg": f"{drawing}<!-- SHA-256 of plan.json beside it: {mark} -->\n".encode(),
        "report.html": report({**sha256, "plan.json beside it": mark}),
    }
    names = {"plan": "plan.json", "report": "report.html", "topology": "topology.svg"}
    if moved is not None:
        files["moves.json"] = plan_to_json(moves_to_dict(moved)).encode()
        names = {"plan": names.pop("plan"), "moves": "moves.json", **names}
    beside = "prefill/plan.json"
    if plan.prefill is not None:
        files[beside] = plan_to_json(plan_to_dict(plan.prefill, command=command, sha256=sha256)).encode()
        names = {"plan": names.pop("plan"), "prefill": beside, **names}
    files["plan.json"] = made  # the last: until it is there, the others differ from it visibly
    stale = [beside] if beside not in files and _vouches(path / beside) else []
    write_folder(path, files, gone=[*stale, *(name for name in RESULTS if name not in files)])
    return {what: str(path / name) for what, name in names.items()}


def fleet_text(fleet: Fleet, sha256: Mapping[str, str]) -> str:
    """Return the report of a fleet, with its pools on the drawing of the cluster."""
    from rackplan.report.fleet import fleet_doc

    return page_of(fleet_doc(fleet), **sha256)


def write_fleet(fleet: Fleet, path: Path, sha256: dict[str, str]) -> dict[str, str]:
    """Write ``fleet.json``, its report and the plan of each kind of replica into a folder, or only the report.

    Returns their paths by what they are.
    """
    from placement.plans.writing import plan_to_dict, plan_to_json
    from rackplan.report.fleet import DIGESTS, MADE, fleet_doc, plan_name

    if is_page(path):
        write_whole(path, fleet_text(fleet, sha256).encode())
        return {"report.html": str(path)}

    files: dict[str, bytes] = {}
    for number, one in enumerate(fleet.plans):
        if one.plan is not None:
            made = plan_to_json(plan_to_dict(one.plan, command=command_line(), sha256=sha256))
            files[plan_name(number)] = made.encode()
    read = DIGESTS({"name": name, "sha256": digest} for name, digest in sha256.items())
    text = json_text(fleet_doc(fleet).with_blocks(MADE({"command": command_line()}), read).data).encode()
    mark = {"fleet.json beside it": hashlib.sha256(text).hexdigest()}
    files["report.html"] = fleet_text(fleet, {**sha256, **mark}).encode()
    files["fleet.json"] = text
    more = takewhile(lambda name: _vouches(path / name), map(plan_name, count(len(fleet.plans))))
    write_folder(path, files, gone=list(more))
    names = [name for name in files if name != "fleet.json"]
    return {"fleet": str(path / "fleet.json"), **{name: str(path / name) for name in names}}
