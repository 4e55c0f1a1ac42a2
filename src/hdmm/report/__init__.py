"""One self-contained HTML page per release: what was protected, every table with its margins, and the strategy."""

from hdmm.report.model import Report
from hdmm.report.page import render
from hdmm.report.workbook import write_workbook

__all__ = ["Report", "render", "write_workbook"]
