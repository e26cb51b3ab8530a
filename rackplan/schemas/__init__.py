"""What JSON looks like, as typed dictionaries, and schemas made of them (:mod:`rackplan.schemas.make`)."""
