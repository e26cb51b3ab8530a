"""Modules by the names they had before: each still imports, for one version, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGES = {"cost.economics": "cost", "cost.measured": "cost.validation", "cost.sweep": "cost.layouts"}
MOVED = {
    **_PACKAGES,
    "cost.capacity": "cost.memory",
    "cost.economics.activations": "cost.activations",
    "cost.economics.bubble": "cost.lecture",
    "cost.economics.cache_tiers": "cost.prices",
    "cost.economics.fast_mode": "cost.lecture",
    "cost.economics.lifetime": "cost.lecture",
    "cost.economics.phases": "cost.lecture",
    "cost.economics.price_step": "cost.lecture",
    "cost.economics.prices": "cost.prices",
    "cost.economics.roofline": "cost.lecture",
    "cost.efficiency": "cost.machine",
    "cost.expert_use": "cost.dispatch",
    "cost.load_files": "cost.loads",
    "cost.measured.predict": "cost.validation.predict",
    "cost.measured.read": "cost.validation.read",
    "cost.measured.statistics": "cost.validation.statistics",
    "cost.rate_matching": "cost.pools",
    "cost.rates": "cost.machine",
    "cost.setting": "cost.deployment",
    "cost.shape": "cost.workload",
    "cost.split": "cost.dispatch",
    "cost.terms.alltoall_placed": "cost.terms.alltoall_volumes",
    "cost.transfer": "cost.pools",
}
"""Old names of modules that pages or examples named, and where their contents are now."""
RENAMED = {
    "SPLITS": "cost.dispatch.DISPATCH_POLICIES",
    "Setting": "cost.deployment.Deployment",
    "Split": "cost.dispatch.DispatchPolicy",
    "hbm_tier": "cost.lecture.hbm_tier",
    "require_split": "cost.dispatch.require_policy",
    "tier_spans": "cost.lecture.tier_spans",
}
"""Names in them that are another now, or elsewhere than their module's other names."""


class _OldNames(MetaPathFinder, Loader):
    """Finds modules by their old names, after every other finder has failed."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's signature
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's signature
    ) -> ModuleSpec | None:
        """Return how to load a module that has moved; None for any other."""
        if fullname not in MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=fullname in _PACKAGES)

    def exec_module(self, module: ModuleType) -> None:
        """Let the module's names be those of where they are now, with a warning that says where."""
        old = module.__name__

        def found(name: str) -> object:
            if name.startswith("__"):  # what tools ask of any module
                raise AttributeError(f"module {old!r} has no attribute {name!r}")
            new = RENAMED.get(name, f"{MOVED[old]}.{name}")
            where, _, known = new.rpartition(".")
            try:
                value: object = getattr(import_module(where), known)
            except AttributeError:
                raise AttributeError(f"module {old!r} has no attribute {name!r}") from None
            warnings.warn(f"{old}.{name} is now {new}.", DeprecationWarning, stacklevel=2)
            return value

        module.__dict__["__getattr__"] = found


def install() -> None:
    """Let old names be imported."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.append(_OldNames())
