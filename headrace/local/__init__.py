"""The local stack of real servers: resolve, start, watch and stop."""
