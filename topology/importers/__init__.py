"""Importers: clusters from the files of other tools. See ``docs/importers.md``."""

from topology.importers.importer import Imported, import_files
from topology.importers.parts import ImportOptions
from topology.importers.registry import KINDS

__all__ = ["KINDS", "ImportOptions", "Imported", "import_files"]
