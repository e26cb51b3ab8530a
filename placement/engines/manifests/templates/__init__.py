"""Templates of the files that start engines, and what they are filled in with."""

from __future__ import annotations

import yaml

from topology.importers.hostlist import compress_hosts


class _Dumper(yaml.SafeDumper):
    """YAML with texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def render(template: str, **values: object) -> str:
    """Return a template filled in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - no HTML
        loader=PackageLoader(__name__, ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"scalar": _scalar, "hostlist": compress_hosts}
    text: str = environment.get_template(template).render(**values)
    return text


def _scalar(text: str, indent: int = 0) -> str:
    """Return a text as YAML, its further lines, where it has some, below ``indent``."""
    head, *lines = (
        yaml.dump({0: text}, Dumper=_Dumper, width=10**6).removeprefix("0: ").rstrip("\n").split("\n")
    )
    return "\n".join([head, *(" " * (indent - 2) + line if line else line for line in lines)])
