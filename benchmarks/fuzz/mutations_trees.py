"""Mappings and lists, tags and cells: JSON, YAML, XML and CSV changed by their structure."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import re
from random import Random
from typing import Any

import hostile
import yaml
from mutations_bytes import mutate_text, number_text, replaced


def _containers(tree: Any, found: list[Any]) -> list[Any]:
    """Return all mappings and lists that have something in them."""
    pending = [tree]
    while pending:
        one = pending.pop()
        if isinstance(one, dict | list) and one:
            found.append(one)
            pending += list(one.values() if isinstance(one, dict) else one)
        if len(found) > 4000:
            break
    return found


def mutate_tree(tree: Any, random: Random) -> Any:
    """Change a tree of mappings and lists in one to four places."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        parts = _containers(tree, [])
        if not parts or random.random() < 0.005:
            return hostile.nested(random) if random.random() < 0.5 else hostile.value(random)
        part = random.choice(parts)
        key = random.choice(list(part) if isinstance(part, dict) else range(len(part)))
        _change(part, key, parts, random)
    return tree


def _change(part: Any, key: Any, parts: list[Any], random: Random) -> None:
    kind, mapping = random.random(), isinstance(part, dict)
    if kind < 0.35:
        part[key] = _near(part[key], random)
    elif kind < 0.5:
        part[key] = hostile.value(random)
    elif kind < 0.62:
        del part[key]
    elif kind < 0.7:
        if mapping:
            part[random.choice((*hostile.KEYS, *map(str, part)))] = copy.deepcopy(part[key])
        else:
            part.insert(random.randint(0, len(part)), copy.deepcopy(part[key]))
    elif kind < 0.76:
        part[key] = [part[key]] if random.random() < 0.5 else {"a": part[key]}
    elif kind < 0.84:
        other = random.choice(parts)
        inner = random.choice(list(other.values()) if isinstance(other, dict) else other)
        part[key] = copy.deepcopy(inner)
    elif kind < 0.89 and mapping:
        part[hostile.text(random)] = part.pop(key)
    elif kind < 0.94 and not mapping:
        part *= random.choice((0, 2, 3, 20))
        del part[2000:]
    elif kind < 0.97:
        part[key] = random.choice(hostile.EXPLOSIVE + hostile.LARGE)
    else:
        part[key] = hostile.nested(random)


def _near(value: Any, random: Random) -> Any:
    """Return a value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice(
            (
                value + 1,
                value - 1,
                -value,
                0,
                value * 2,
                value * 1000,
                int(value / 2),
                float(value),
                str(value),
            )
        )
    if isinstance(value, float):
        return random.choice(
            (
                value * 1e9,
                value / 1e9,
                -value,
                0.0,
                float("nan"),
                1e308,
                int(max(-1e18, min(value, 1e18))) if not math.isnan(value) else 0,
            )
        )
    if isinstance(value, str):
        return (
            mutate_text(value.encode("utf-8", "replace"), random).decode("utf-8", "replace")
            if value
            else hostile.text(random)
        )
    return hostile.value(random)


def mutate_json(data: bytes, random: Random) -> bytes:
    """Change a JSON text by its tree, its text, or both."""
    kind = random.random()
    if kind < 0.15:
        return mutate_text(data, random)
    try:
        tree = json.loads(data)
        made = json.dumps(mutate_tree(tree, random), ensure_ascii=random.random() < 0.5)
    except (ValueError, RecursionError):
        return mutate_text(data, random)
    found = made.encode("utf-8", "surrogatepass" if random.random() < 0.1 else "replace")
    return mutate_text(found, random) if kind > 0.93 else found


def mutate_json_lines(data: bytes, random: Random) -> bytes:
    """Change one line as JSON, or the lines."""
    lines = data.split(b"\n")
    if random.random() < 0.25:
        return mutate_text(data, random)
    at = random.randrange(len(lines))
    lines[at] = mutate_json(lines[at], random)
    return b"\n".join(lines)


def mutate_yaml(data: bytes, random: Random) -> bytes:
    """Change a YAML text by its tree or its text."""
    if random.random() < 0.25:
        return mutate_text(data, random)
    try:
        tree = mutate_tree(yaml.load(data, Loader=yaml.CSafeLoader), random)
        if random.random() < 0.5:
            return json.dumps(tree, default=str).encode()  # JSON is YAML, but for its numbers
        made = yaml.dump(
            tree,
            Dumper=yaml.CSafeDumper,
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=random.random() < 0.2,
        )
        return made.encode("utf-8", "replace")
    except (ValueError, RecursionError, yaml.YAMLError):
        return mutate_text(data, random)


_TAG = re.compile(r"<[^<>]*>")
_ATTRIBUTE = re.compile(r'(?<![\w:-])([\w:-]++)="([^"]*+)"')


def mutate_xml(data: bytes, random: Random) -> bytes:
    """Change tags and attributes."""
    found = data.decode("utf-8", "replace")
    for _ in range(random.choice((1, 1, 2, 4))):
        kind = random.random()
        if kind < 0.5:
            found = replaced(found, _ATTRIBUTE, random, _attribute)
        elif kind < 0.75:
            found = replaced(found, _TAG, random, _tag)
        elif kind < 0.78:
            found = f'<!DOCTYPE a [<!ENTITY x "{"y" * 50}">]>' + found.replace('"1"', '"&x;"', 1)
        else:
            found = mutate_text(found.encode("utf-8", "replace"), random).decode("utf-8", "replace")
    return found.encode("utf-8", "replace")[:1_000_000]


def _attribute(random: Random, text: str) -> str:
    name, _, value = text.partition("=")
    kind = random.randint(0, 4)
    if kind == 0:
        return ""
    if kind == 1:
        return f"{name}={value} {name}2={value}"
    made = (
        hostile.text(random)
        if kind == 2
        else str(_near(value.strip('"'), random))
        if kind == 3
        else number_text(random, "")
    )
    return f'{name}="{made.replace("&", "&amp;").replace("<", "&lt;").replace(chr(34), "&quot;")}"'


def _tag(random: Random, text: str) -> str:
    return random.choice(
        (
            "",
            text * 2,
            text * 100,
            "<" + text[2:] if text.startswith("</") else text[:-1] + "/>",
            f"<a>{text}</a>",
            f"<!-- {text} -->",
            f"<![CDATA[{text}]]>",
        )
    )


def mutate_csv(data: bytes, random: Random) -> bytes:
    """Change cells, rows and columns."""
    if random.random() < 0.2:
        return mutate_text(data, random)
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline="")))
    except csv.Error:
        return mutate_text(data, random)
    for _ in range(random.choice((1, 1, 2, 4))):
        if not rows or not any(rows):
            break
        at = random.randrange(len(rows))
        row = rows[at]
        kind, cell = random.random(), random.randrange(len(row)) if row else 0
        if kind < 0.6 and row:
            row[cell] = random.choice(
                (hostile.text(random), number_text(random, ""), str(_near(row[cell], random)))
            )
        elif kind < 0.7:
            rows.insert(random.randint(0, len(rows)), list(row))
        elif kind < 0.8:
            del rows[at]
        elif kind < 0.9 and row:
            del row[cell]
        else:
            for one in rows:
                one.insert(min(cell, len(one)), hostile.text(random) if one is rows[0] else "1")
    out = io.StringIO()
    csv.writer(out, lineterminator=random.choice(("\n", "\r\n"))).writerows(rows)
    return out.getvalue().encode("utf-8", "replace")
