"""Mutation testing of the private path (docs/trust/security.md): `make mutants` runs `python -m tests.mutants`."""
