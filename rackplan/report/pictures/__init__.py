"""The data of pictures that a browser draws: :class:`rackplan.views.blocks.Picture` of each kind, one a file."""
