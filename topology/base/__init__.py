"""Base tools of all packages: errors, units, names, figures with their origin, files."""
