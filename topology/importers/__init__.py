"""Importers: clusters from the files of other tools. See ``docs/catalog.md``."""

from topology.importers.complete import Imported
from topology.importers.importer import KINDS, import_files
from topology.importers.options import ImportOptions

__all__ = ["KINDS", "ImportOptions", "Imported", "import_files"]
