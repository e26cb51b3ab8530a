"""Files that would surprise a reader: cut short, empty, too deep, with tags, aliases, duplicate keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engines.strict_text import read_json, read_yaml
from topology.base.errors import InputError

BAD_YAML = {
    'a: !!python/object/apply:os.system ["touch ran"]': "a YAML tag",
    "a: &x [1]\nb: *x": "line 2: YAML aliases",
    "a: 1\na: 2": "duplicate key 'a'",
    "[" * 100_000: "nest",
    "a: [1, 2": "not valid YAML",
}


@pytest.mark.parametrize("text", BAD_YAML, ids=lambda text: repr(text[:30]))
def test_bad_yaml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=BAD_YAML[text]) as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


BAD_JSON = {
    "{": "is the file truncated",
    '{"a": 1, "a": 1}': "a: duplicate key",
    "[-Infinity]": "0: infinite or too large",
    "[" * 100_000: "nested too deeply",
}


@pytest.mark.parametrize("text", BAD_JSON, ids=lambda text: repr(text[:30]))
def test_bad_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InputError, match=BAD_JSON[text]) as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


LEAVES = st.integers(-(10**17), 10**17) | st.from_regex(r"[a-z]{1,8}x\Z")
LISTS = st.lists(LEAVES | st.lists(LEAVES, max_size=4), max_size=4)
VALUES = LEAVES | LISTS | st.dictionaries(st.from_regex(r"[a-z]{1,8}x\Z"), LEAVES | LISTS, max_size=4)


@settings(deadline=None, max_examples=30)
@given(value=VALUES, flow=st.booleans())
def test_yaml_is_read_as_a_safe_loader_reads_it(
    tmp_path_factory: pytest.TempPathFactory, value: object, flow: bool
) -> None:
    text = yaml.dump(json.loads(json.dumps(value)), Dumper=yaml.SafeDumper, default_flow_style=flow)
    path = tmp_path_factory.mktemp("yaml") / "plan.yaml"
    path.write_text(text)
    assert read_yaml(path) == yaml.safe_load(text)
