"""The parts of a step, one file each: compute, reads, communication and time of each GPU."""
