"""Several scenarios, one placement: the search, its bound, and how it fares on a scenario it has not seen."""
