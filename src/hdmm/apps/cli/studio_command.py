"""The command that serves a page to plan and release with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hdmm.apps.cli.options import FILE, Given, specified
from hdmm.apps.cli.output import Output
from hdmm.base.exceptions import EngineError
from hdmm.base.lazy import Lazy

if TYPE_CHECKING:
    from hdmm.apps.studio import serve as server
    from hdmm.apps.studio import spec_file as files
else:
    files, server = Lazy("hdmm.apps.studio.spec_file"), Lazy("hdmm.apps.studio.serve")


@click.command()
@click.argument("spec", type=FILE)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Serve on this port. By default any free one.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@specified
def studio(spec: Path, port: int, no_browser: bool, given: Given) -> None:
    """Plan and release in a browser, on this machine alone. Edits the specification; a release asks first."""
    if given.only:
        raise click.UsageError("The studio shows all tables of a specification. Leave out --only.")
    out = Output(as_json=False, quiet=False)
    given.load(spec)  # a file that cannot be read is refused before anything is served
    try:
        file = files.StudioFile(spec.absolute(), given.variables, given.source, given.output)
        server.serve(file, port=port, browser=not no_browser, say=out.say)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("starlette", "tomlkit", "uvicorn"):
            raise
        raise EngineError("The studio needs more packages. Install them: pip install 'hdmm[studio]'.") from None
