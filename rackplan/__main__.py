"""``python -m rackplan``."""

from rackplan.cli import main

main()
