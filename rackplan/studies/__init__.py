"""Studies: many points priced on all cores or a Ray cluster, each a row that survives whatever stops them."""
