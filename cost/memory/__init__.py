"""What the engine keeps of HBM beside weights and cache, and the room that is left for the cache."""
