"""One self-contained HTML page per release: what was protected, every table with its margins, and the strategy."""

from hdmm.publication.report.contents import Report
from hdmm.publication.report.page import render
from hdmm.publication.report.workbook import write_workbook

__all__ = ["Report", "render", "write_workbook"]
