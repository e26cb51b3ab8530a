"""Output of commands: text without control sequences, one JSON object, and result files written together."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackplan.progress import hide
from topology.base.errors import LONGEST, InputError, beginning, printable, shortened, spelled
from topology.base.files import require_folder, require_place, write_folder, write_whole

if TYPE_CHECKING:
    from placement.migrate.replan import Replanned
    from placement.plan import Plan
    from rackplan.report.doc import Doc

_MAX_NAME_CHARS = 120
"""Characters of a default folder name, below the 255 bytes that file systems allow."""
_HEAD_BYTES = 4096
"""Start of a result file (bytes) that has its ``schema_version``."""
_VOUCHERS = ("plan.json", "compare.json")
"""Result files whose ``schema_version`` marks their folder as written by rackplan."""
RESULTS = ("plan.json", "report.html", "topology.svg", "moves.json")
"""Files of a plan."""


def steady_streams() -> None:
    """Make output streams robust against closed pipes and missing characters."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - as long as we run
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@dataclass(frozen=True)
class Run:
    """How a command is run: where its result is written, and whether it prints all details, or JSON."""

    output: Path | None = None
    details: bool = True
    json: bool = False

    def show(self, doc: Doc, notes: Sequence[str] = (), written: Iterable[object] = ()) -> None:
        """Print a result on standard output: its data as one object, or as text (all of it with ``details``).

        ``notes`` on what was asked go to standard error, and into the object; ``written`` are the result's files.
        """
        from rackplan.report.doc import Note

        doc = doc.with_blocks(Note(", ".join(map(str, written)), kind="written"))
        if self.json:
            print_text(notes, _json_parts(doc.with_blocks(*(Note(f"{text}.") for text in notes)).data))
        else:
            from rackplan.report.text import text as text_of

            print_text(notes, [text_of(doc, details=self.details)])

    def show_file(self, text: str, doc: Doc, notes: Sequence[str] = ()) -> None:
        """Print the content of a file on standard output; with ``json`` its document, which has the text."""
        if self.json:
            self.show(doc, notes)
        else:
            print_text(notes, [text])

    def folder(self, name: str, names: Sequence[str]) -> Path:
        """Return where results go (by default a folder of that name), checked before anything is computed.

        Raises
        ------
        InputError
            If it cannot be written to, or has files named as ``names`` that rackplan did not write.
        """
        path = self.output or default_output(name)
        if is_page(path):
            require_place(path)
        else:
            _require_results(path, names)
        return path

    def writer(self, name: str, *extra: str, html: str = "") -> Callable[..., None]:
        """Return a function that shows a document and writes it as ``NAME.json``, as a page, and as ``extra`` files.

        The page is ``html`` (``NAME.html``). They go into the output if it is a folder; if it is a file, only that
        with its ending is written.

        Raises
        ------
        InputError
            If the output cannot be written, ends as a file of another form, or holds another result; before anything
            is computed.
        """
        path, data, html = self.output, f"{name}.json", html or f"{name}.html"
        endings = {Path(file).suffix: file for file in (*extra, data, html)}
        as_folder = path is not None and (path.is_dir() or not path.suffix)
        if path is not None and path.name in {*RESULTS, *_VOUCHERS} - {data, html} and path.is_file():
            raise InputError(f"-o {path}: it holds another result; choose another -o.")
        if path is not None and as_folder:
            _require_results(path, list(endings.values()))
        elif path is not None:
            if path.suffix.lower() not in endings:
                *suffixes, last_suffix = endings
                listed = f"{', '.join(suffixes)} or {last_suffix}"
                raise InputError(f"-o {path}: the file suffix sets the format: {listed}.")
            require_place(path)

        def finish(
            doc: Doc, texts: Mapping[str, Callable[[], str]] | None = None, notes: Sequence[str] = ()
        ) -> None:
            forms = {data: lambda: json_text(doc.data), html: lambda: page_of(doc), **(texts or {})}
            written: list[Path] = []
            if path is not None and as_folder:
                write_folder(path, {file: text().encode() for file, text in forms.items()})
                written = [path / file for file in forms]
            elif path is not None:
                write_whole(path, forms[endings[path.suffix.lower()]]().encode())
                written = [path]
            self.show(doc, notes, written)

        return finish


def print_text(notes: Sequence[str], parts: Iterable[str]) -> None:
    """Write notes on standard error, and the parts of a text on standard output."""
    hide()
    for text in notes:
        print_error(spelled(f"note: {text}."))
    sys.stdout.writelines(parts)


def json_text(data: Mapping[str, Any]) -> str:
    """Return one object in strict JSON, in ASCII."""
    return "".join(_json_parts(data))


def _json_parts(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of one object, some of it at a time: there may be 200,000 links in it."""
    parts = json.JSONEncoder(indent=2, allow_nan=False).iterencode(data)
    while chunk := list(islice(parts, 10_000)):
        yield "".join(chunk)
    yield "\n"


def print_error(text: str) -> None:
    """Print one line on standard error, after the name of the program."""
    hide()
    for word in sys.argv[1:]:  # a path with spaces stands without quotes
        text = text.replace(word, beginning(word)) if len(word) > LONGEST else text
    sys.stderr.write(f"rackplan: {printable(shortened(' '.join(text.split())))}\n")


def default_output(name: str) -> Path:
    """Return the default results folder: ``out/deepseek-v3-on-gb200-nvl72``."""
    plain = re.sub(r"[^\w.@+-]+", "-", name.strip(), flags=re.ASCII).strip("-.")
    return Path("out") / (plain[:_MAX_NAME_CHARS] or "plan")


def _vouches(path: Path) -> bool:
    """Whether a file is a result of ours."""
    try:
        with path.open("rb") as file:
            return b'"schema_version"' in file.read(_HEAD_BYTES)
    except OSError:
        return False


def _require_results(folder: Path, names: Sequence[str]) -> None:
    """Check the results folder; existing files of these ``names`` are replaced if rackplan wrote them.

    Raises
    ------
    InputError
        If it cannot be written to, or one of them is there and no file of results with a version of our schema is
        beside it: it may be somebody else's.
    """
    require_folder(folder, names)
    existing = [name for name in names if (folder / name).is_file()]
    vouchers = {*_VOUCHERS, *(name for name in names if name.endswith(".json"))}
    if existing and not any(_vouches(folder / name) for name in vouchers):
        raise InputError(
            f"-o {folder}: {folder / existing[0]} exists and was not written by rackplan; choose another -o, or "
            "move it."
        )


def command_line() -> str:
    """Return the running command in shell syntax."""
    return shlex.join(["rackplan", *sys.argv[1:]])


def is_page(path: Path | None) -> bool:
    """Whether a path asks only for the report (``FILE.html``), not for a results folder."""
    return path is not None and path.suffix.lower() == ".html" and not path.is_dir()


def page_of(doc: Doc, /, **digests: str) -> str:
    """Return the page of a document, with the command that made it and the digests of what it was made from."""
    from rackplan.report.doc import Code
    from rackplan.report.page import page

    rows = "".join(f"\n# SHA-256 of {name}: {digest}" for name, digest in digests.items())
    origin = Code("", f"{command_line()}{rows}", "How it was made")
    return page(replace(doc, details=[*doc.details, origin]))


def write_plan(
    plan: Plan, doc: Doc, path: Path, sha256: dict[str, str], *, moved: Replanned | None = None
) -> dict[str, str]:
    """Write the plan, its picture and its page into a folder, or only the page; return paths by kind.

    Of a re-plan ``moved`` is all of it: its moves are a file more. All carry the digest of the plan beside them.
    """
    from placement.migrate.moves_file import moves_to_dict
    from placement.plans.beside import DIGESTED, plan_digest
    from placement.plans.writing import plan_to_json
    from rackplan.report.results import svg

    if is_page(path):
        write_whole(path, page_of(doc, **sha256).encode())
        return {"report": str(path)}
    plan_bytes, files = _plan_bytes(plan, sha256), dict[str, bytes]()
    mark = plan_digest(plan_bytes)
    drawing = f"{svg(plan) or ''}<!-- SHA-256 of {DIGESTED}: {mark} -->\n"
    files["topology.svg"] = drawing.encode()
    files["report.html"] = page_of(doc, **sha256, **{DIGESTED: mark}).encode()
    if moved is not None:
        files["moves.json"] = plan_to_json(moves_to_dict(moved, mark)).encode()
    files["plan.json"] = plan_bytes  # the last: until it is there, the others differ from it visibly
    write_folder(path, files, gone=[name for name in RESULTS if name not in files])
    names = {"plan": "plan.json", "moves": "moves.json", "report": "report.html", "topology": "topology.svg"}
    return {kind: str(path / name) for kind, name in names.items() if name in files}


def _plan_bytes(plan: Plan, sha256: dict[str, str]) -> bytes:
    """Return the content of a ``plan.json``."""
    from placement.plans.writing import plan_to_dict, plan_to_json

    return plan_to_json(plan_to_dict(plan, command=command_line(), sha256=sha256)).encode()
