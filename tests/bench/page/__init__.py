"""``docs/benchmarks.md``, made of results and nothing else."""
