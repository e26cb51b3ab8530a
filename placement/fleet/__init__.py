"""A fleet: which replicas stand where on a cluster, of different shapes at once."""
