"""What the machine is: specifications, catalog, graphs and drawings."""
