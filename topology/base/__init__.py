"""What every package reads, writes and refuses with: errors, units, names, figures with their origin, files."""
