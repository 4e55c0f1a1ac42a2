"""The command line: hdmm init, check, plan, release, studio, budget, query, show, report, schema, demo."""

from hdmm.apps.cli.program import main, run

__all__ = ["main", "run"]
