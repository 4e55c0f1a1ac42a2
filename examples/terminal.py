"""A picture of the command line: `hdmm check` and `hdmm plan` on the demonstration's 100,000 synthetic persons.

Run with `python -m examples.terminal OUT.svg`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hdmm.apps.demo import write_demo

COMMANDS = (("check", "demo/people.toml"), ("plan", "demo/people.toml"))
WIDTH = 100


def picture(commands: Sequence[Sequence[str]], folder: Path) -> str:
    """The terminal output of these hdmm commands in a folder, as SVG that fetches nothing from elsewhere."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    sources = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": sources, "COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}
    for command in commands:
        console.print(Text(f"$ hdmm {' '.join(command)}", style="bold green"))
        ran = subprocess.run(
            [sys.executable, "-m", "hdmm", *command], cwd=folder, env=environment, capture_output=True, check=True
        )
        console.print(Text.from_ansi(ran.stdout.decode().rstrip()), end="\n\n")
    drawn = console.export_svg(title="hdmm", unique_id="terminal")
    return re.sub(r"@font-face {.*?}", "", drawn, flags=re.DOTALL)  # no fonts from the network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        write_demo(Path(folder) / "demo")
        out.write_text(picture(COMMANDS, Path(folder)), encoding="utf-8")
    print(f"{out}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
