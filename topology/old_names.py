"""Old public names, of modules and of what is in them: each still works, for one version, with a warning.

Every package registers its own; :func:`old_name` says what one is now.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MODULES: dict[str, str] = {}
"""Old names of modules, and where their contents are now."""
NAMES: dict[str, str] = {}
"""Old names in modules, in full, that are another now, or elsewhere than their module's other names."""
ADAPTERS: dict[str, str] = {}
"""Old functions, in full, whose parameters are others now, and what still takes the old ones."""


def register(modules: Mapping[str, str], names: Mapping[str, str], adapters: Mapping[str, str]) -> None:
    """Let old names of a package be imported: entries of :data:`MODULES`, :data:`NAMES`, :data:`ADAPTERS`."""
    MODULES.update(modules)
    NAMES.update(names)
    ADAPTERS.update(adapters)
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())


def old_name(module: str, name: str) -> object:
    """Return what ``name`` of ``module`` is now, with a warning that says where: for a module's ``__getattr__``.

    Raises
    ------
    AttributeError
        If it is no old name.
    """
    old = f"{module}.{name}"
    if name.startswith("__") or not (
        old in NAMES or module in MODULES
    ):  # tools ask any module for dunder names
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    new = NAMES.get(old) or f"{MODULES[module]}.{name}"
    where, _, known = ADAPTERS.get(old, new).rpartition(".")
    try:
        value: object = getattr(import_module(where), known)
    except AttributeError:
        raise AttributeError(f"module {module!r} has no attribute {name!r}") from None
    warnings.warn(f"{old} is now {new}.", DeprecationWarning, stacklevel=3)
    return value


def serve_old_names(module: str) -> None:
    """Let a module answer its old names beside those that it has."""
    sys.modules[module].__dict__["__getattr__"] = lambda name: old_name(module, name)


class _OldModules(MetaPathFinder, Loader):
    """Finds modules by their old names, after every other finder has failed."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's signature
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's signature
    ) -> ModuleSpec | None:
        """Return how to load a module that has moved; None for any other."""
        if fullname not in MODULES:
            return None
        is_package = any(known.startswith(f"{fullname}.") for known in MODULES)
        return ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        """Let the module's names be those of where they are now."""
        serve_old_names(module.__name__)
