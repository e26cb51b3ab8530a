"""Objects of JSON in which a key stands twice."""

from __future__ import annotations

import json

import pytest

from topology.strict_json import unique_keys

HOOK = unique_keys(lambda key: ValueError(f"{key} again"))


def test_a_key_that_stands_twice_is_named() -> None:
    assert json.loads('{"a": 1, "b": {"a": 2}}', object_pairs_hook=HOOK) == {"a": 1, "b": {"a": 2}}
    with pytest.raises(ValueError, match=r"^b again$"):
        json.loads('{"a": 1, "b": 2, "c": {}, "b": 3, "a": 4}', object_pairs_hook=HOOK)


def test_many_keys_take_no_longer_than_they_must() -> None:
    """Looking for the second one key by key, a million keys took hours."""
    text = json.dumps({str(i): 0 for i in range(1_000_000)})[:-1] + ', "999999": 0}'
    with pytest.raises(ValueError, match=r"^999999 again$"):
        json.loads(text, object_pairs_hook=HOOK)
