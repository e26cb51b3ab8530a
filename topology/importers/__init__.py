"""Importers: clusters from the files of other tools. See ``docs/catalog.md``."""

from topology.importers.answers import ImportOptions
from topology.importers.complete import Imported
from topology.importers.importer import KINDS, import_files

__all__ = ["KINDS", "ImportOptions", "Imported", "import_files"]
