"""What a token costs: latency and price against batch, phases, caches, prices and powers, life of a model."""
