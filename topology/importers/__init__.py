"""Importers: clusters from the files of other tools. See ``docs/catalog.md``."""

from topology.importers.importer import KINDS, Imported, import_files
from topology.importers.options import ImportOptions

__all__ = ["KINDS", "ImportOptions", "Imported", "import_files"]
