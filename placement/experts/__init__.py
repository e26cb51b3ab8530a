"""The placement of the experts of a layer: which expert is in which slot of which GPU."""
