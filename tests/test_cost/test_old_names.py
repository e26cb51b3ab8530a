"""Modules that have moved: their old names import, and say where they are now."""

import sys
from importlib import import_module

import pytest

from cost.old_names import MOVED


@pytest.mark.parametrize(
    ("module", "name", "new"),
    [
        ("cost.setting", "Setting", "cost.deployment.Deployment"),
        ("cost.split", "slot_shares", "cost.dispatch.slot_shares"),
        ("cost.sweep", "iso_interactivity", "cost.layouts.iso_interactivity"),
        ("cost.economics.cache_tiers", "tier_spans", "cost.lecture.tier_spans"),
        ("cost.measured.predict", "predict", "cost.validation.predict.predict"),
    ],
)
def test_an_old_name_is_what_is_there_now(module, name, new):
    sys.modules.pop(module, None)
    old = import_module(module)
    where, _, known = new.rpartition(".")
    with pytest.warns(DeprecationWarning, match=rf"^{module}\.{name} is now {new}\.$"):
        assert getattr(old, name) is getattr(import_module(where), known)


def test_tools_may_ask_an_old_module_for_its_file():
    assert not hasattr(import_module("cost.setting"), "__file__")


def test_every_new_home_is_there():
    for module in MOVED.values():
        assert import_module(module)


def test_what_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"cost\.nowhere"):
        import_module("cost.nowhere")
    with pytest.raises(AttributeError, match="Nothing"):
        import_module("cost.setting").Nothing  # noqa: B018
