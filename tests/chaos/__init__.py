"""Chaos: jobs of all kinds under random faults, then quiet, then every invariant. `make chaos MINUTES=10 SEED=1`."""
