"""What a plan would do if something changed: a failure, more copies, another cluster, a lever."""
