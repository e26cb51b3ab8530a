"""First principles of serving: what a blackboard says of a model, a chip, its links and prices."""
