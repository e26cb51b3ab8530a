"""Studies: many points priced on all cores or a Ray cluster; finished rows survive interruptions."""
