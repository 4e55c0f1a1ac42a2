"""The command line: hdmm init, check, plan, release, budget, query, show, report, schema, demo (docs/cli.md)."""

from hdmm.cli.app import main, run

__all__ = ["main", "run"]
