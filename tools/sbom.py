"""Write the bill of materials (CycloneDX 1.6, JSON) of the wheel with all extras of its users.

    uv run --no-project --with 'cyclonedx-bom>=7.5,<8' --with uv tools/sbom.py WHEEL -o dist/sbom.cdx.json

`make sbom` runs it. The wheel is installed into an environment of its own, which cyclonedx-bom reads. What
wheels carry inside is added to their packages: their own bills (PEP 770), shared libraries that have none, and the
parts that no record names: Graphviz in pygraphviz, Plotly.js in Plotly and in ours, the font in ours. The same
environment gives the same bytes: no serial number, and no time but SOURCE_DATE_EPOCH. The result is held against the
schema first.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from environments import ROOT, USED, Failure, make_environment, project, run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

VERSION = SchemaVersion.V1_6
_DRAWING = """
import pygraphviz
graph = pygraphviz.AGraph()
graph.add_node("a", pos="0,0")
print(graph.draw(format="svg", prog="nop2").decode())
"""


def main() -> None:
    """Make the environment, and write what is in it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write (.cdx.json)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rackplan-sbom-") as name:
        python = make_environment(Path(name) / "environment", f"{given.wheel.resolve()}[{','.join(USED)}]")
        bom = Bom.from_json(json.loads(of_environment(python)))
        add_contents(bom, python)
    text = written(bom)
    if error := JsonStrictValidator(VERSION).validate_str(text):
        raise Failure(f"the bill of materials is not of its schema: {error}")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(text, encoding="utf-8")
    inside = sum(len(component.components) for component in [*bom.components, bom.metadata.component])
    needed = sum(component.scope is ComponentScope.REQUIRED for component in bom.components)
    print(f"sbom: {len(bom.components)} packages, {needed} of them always needed, with {inside} parts inside")
    unknown = sorted(one.name for one in bom.components if not one.licenses)
    print(f"sbom: {given.output}; packages that declare no licence: {', '.join(unknown) or 'none'}")


def of_environment(python: Path) -> str:
    """Return the bill that cyclonedx-bom makes of an environment."""
    words = [
        "environment",
        "--pyproject",
        ROOT / "pyproject.toml",
        "--output-reproducible",
        "--sv",
        VERSION.to_version(),
    ]
    return run(Path(sys.executable).with_name("cyclonedx-py"), *words, "-o", "-", python)


def add_contents(bom: Bom, python: Path) -> None:
    """Say which packages are always needed, which licence they declare in words, and what they carry inside."""
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    records = {canonicalize_name(one.name): one for one in metadata.distributions(path=[str(site)])}
    needed = closure(bom)
    for component in bom.components:
        name = canonicalize_name(component.name)
        component.scope = (
            ComponentScope.REQUIRED if component.bom_ref.value in needed else ComponentScope.OPTIONAL
        )
        record = records[name]
        if not component.licenses and (
            words := (record.metadata.get("License") or "").strip().split("\n")[0]
        ):
            component.licenses.add(DisjunctiveLicense(name=words))
        component.components.update(carried(record))
        if name == "pygraphviz":
            component.components.update(graphviz(python))
        if name == "plotly":
            script = site / "plotly" / "package_data" / "plotly.min.js"
            component.components.add(plotly_js(script.read_bytes(), "plotly/plotly.js"))
    basic = gzip.decompress((site / "rackplan" / "report" / "static" / "plotly-basic.min.js.gz").read_bytes())
    bom.metadata.component.components.update([font(site), plotly_js(basic, "rackplan/plotly.js")])


def closure(bom: Bom) -> set[str | None]:
    """Return the references of the packages that are needed without any extra, those that they need included."""
    edges = {one.ref.value: [two.ref.value for two in one.dependencies] for one in bom.dependencies}
    direct = {canonicalize_name(Requirement(text).name) for text in project()["dependencies"]}
    waiting = [one.bom_ref.value for one in bom.components if canonicalize_name(one.name) in direct]
    found: set[str | None] = set()
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += edges.get(one, [])
    return found


def carried(record: metadata.Distribution) -> Iterator[Component]:
    """Yield what a wheel says that it carries (PEP 770), and of shared libraries without such a bill the files."""
    bills = [file for file in record.files or () if file.parent.name == "sboms" and file.suffix == ".json"]
    for file in bills:
        for one in Bom.from_json(json.loads(file.read_text())).components:
            if canonicalize_name(one.name) != canonicalize_name(record.name):
                yield Component(
                    name=one.name, version=one.version, purl=one.purl, licenses=one.licenses, type=one.type,
                    bom_ref=f"{record.name}/{one.name}@{one.version}",
                )  # fmt: skip
    if not bills:
        for file in record.files or ():
            if file.parent.name.endswith(".libs"):
                content = Path(str(file.locate())).read_bytes()
                yield Component(
                    name=str(file),
                    type=ComponentType.FILE,
                    hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256(content).hexdigest())],
                    bom_ref=f"{record.name}/{file}",
                )


def graphviz(python: Path) -> Iterator[Component]:
    """Yield Graphviz, which the wheel was built with and its bill does not name; its licence is beside that one's."""
    drawn = subprocess.run([python, "-c", _DRAWING], capture_output=True, text=True, check=True).stdout
    yield Component(
        name="graphviz",
        version=found_in(drawn, r"graphviz version ([\d.]+)"),
        licenses=[LicenseExpression("EPL-2.0")],
        bom_ref="pygraphviz/graphviz",
    )


def plotly_js(script: bytes, reference: str) -> Component:
    """Return the library that draws charts, as the first lines of a build name it."""
    head = script[:500].decode()
    if "MIT" not in head:
        raise Failure(f"{reference} is no longer under the MIT license: look at it")
    return Component(
        name="plotly.js",
        version=found_in(head, r"plotly\.js [^\n]*?v([\d.]+)"),
        licenses=[LicenseExpression("MIT")],
        bom_ref=reference,
    )


def font(site: Path) -> Component:
    """Return the font of the drawings, which is in our own wheel."""
    content = (site / "topology" / "fonts" / "DejaVuSans.ttf").read_bytes()
    return Component(
        name="DejaVu Sans",
        version=found_in(content.decode("latin-1").replace("\0", ""), r"Version ([\d.]+)"),
        licenses=[LicenseExpression("Bitstream-Vera")],
        properties=[Property(name="rackplan:license-file", value="topology/fonts/LICENSE-DejaVu")],
        bom_ref="rackplan/dejavu-sans",
    )


def found_in(text: str, pattern: str) -> str:
    """Return the first group of a pattern.

    Raises
    ------
    Failure
        If it is nowhere in the text.
    """
    found = re.search(pattern, text)
    if found is None:
        raise Failure(f"{pattern} is nowhere in what should name it")
    return found[1].rstrip(".")


def written(bom: Bom) -> str:
    """Return the text, without a serial number and with no time but that of SOURCE_DATE_EPOCH."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    bom.serial_number = None  # type: ignore[assignment] # optional in the schema
    bom.metadata.timestamp = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else None  # type: ignore[assignment]
    return f"{make_outputter(bom, OutputFormat.JSON, VERSION).output_as_string(indent=2)}\n"


if __name__ == "__main__":
    main()
