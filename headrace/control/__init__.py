"""Use cases: registering sources and sinks, starting jobs, asking for snapshots, reading lag."""
