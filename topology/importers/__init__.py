"""Importers: clusters from the files of other tools. See ``docs/importers.md``."""

from topology.importers.detect import KINDS
from topology.importers.importer import FileRead, Imported, import_files
from topology.importers.options import ImportOptions

__all__ = ["KINDS", "FileRead", "ImportOptions", "Imported", "import_files"]
