"""Mutation testing of the private path (docs/security.md): `make mutants` runs `python -m tests.mutants`."""
