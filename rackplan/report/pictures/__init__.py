"""The data of pictures that a browser draws: :class:`rackplan.report.doc.Picture` of each kind, one a file."""
