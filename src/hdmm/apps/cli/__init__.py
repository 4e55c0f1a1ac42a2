"""The command line: every command of hdmm, and how errors become exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hdmm.apps.cli.check_command import check
from hdmm.apps.cli.init_command import init, schema
from hdmm.apps.cli.options import FILE, SpecOverrides, specified
from hdmm.apps.cli.output import ERROR, INTERRUPTED, USAGE, Output, failed, refuse
from hdmm.apps.cli.plan_command import plan
from hdmm.apps.cli.published_commands import combine_releases, diff, query, report, rows, show
from hdmm.apps.cli.release_command import budget, release
from hdmm.apps.demo import write_demo
from hdmm.base.durable import require_posix
from hdmm.base.exceptions import EngineError, HdmmError, Interrupted
from hdmm.base.lazy import Lazy
from hdmm.publication.spec import load_spec

if TYPE_CHECKING:
    from hdmm.apps.studio import serve as server
    from hdmm.apps.studio import spec_file as files
else:
    files, server = Lazy("hdmm.apps.studio.spec_file"), Lazy("hdmm.apps.studio.serve")

_READS_DATA = {"release", "studio", "demo", "init", "--look-at-data"}
_MAY_HAVE_SPENT = {"studio", "demo"}  # an error of a release says what it has spent; otherwise that is nothing


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of a command line: 0 done, 1 wrong input, 2 usage, 3 budget, 4 ledger, 130 interrupted."""
    as_json = "--json" in arguments
    try:
        require_posix("The command hdmm")
        left: object = app.main(arguments, prog_name="hdmm", standalone_mode=False)
    except HdmmError as wrong:
        return failed(wrong, as_json=as_json)
    except click.UsageError as wrong:
        if as_json:
            refuse(wrong.format_message(), "UsageError", USAGE, as_json=True)
        else:
            wrong.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt) as stop:
        outcome = _outcome(stop.__cause__ or stop, arguments)  # click turns KeyboardInterrupt into Abort
        refuse(f"Interrupted. {outcome}", "Interrupted", INTERRUPTED, as_json=as_json)
        return INTERRUPTED
    except Exception as wrong:  # its message or traceback could reveal data (security O3)
        if "HDMM_DEBUG" in os.environ and not _READS_DATA & set(arguments):
            raise
        message = f"Something unexpected went wrong ({type(wrong).__name__}). {_outcome(wrong, arguments)}"
        refuse(message, type(wrong).__name__, ERROR, as_json=as_json)
        return ERROR
    return left if isinstance(left, int) else 0  # the code of ctx.exit, which click returns


def _outcome(stop: BaseException, arguments: list[str]) -> str:
    """What a command that ends like this has spent, and what is left to do."""
    if isinstance(stop, Interrupted):
        return str(stop)
    if isinstance(stop, KeyboardInterrupt) and isinstance(stop.__context__, HdmmError):
        return str(stop.__context__)  # of a release that went on until it failed
    return (
        "What was debited stays charged; see hdmm budget." if _MAY_HAVE_SPENT & set(arguments) else "Nothing was spent."
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hdmm")
def app() -> None:
    """Publish tables about people under differential privacy, with the least error a budget allows.

    A specification (hdmm init) says which tables; hdmm plan shows their margins of error and spends nothing; hdmm
    release spends the budget and writes them. Exit codes: 0 done, 1 wrong input, 2 wrong usage, 3 budget refused, 4
    ledger trouble, 130 interrupted.
    """


@click.command()
@click.argument("spec", type=FILE)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Serve on this port. By default any free one.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@specified
def studio(spec: Path, port: int, no_browser: bool, given: SpecOverrides) -> None:
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


@click.command()
@click.argument("folder", type=FILE, default=Path("hdmm-demo"))
@click.pass_context
def demo(context: click.Context, folder: Path) -> None:
    """Generate 100,000 fictitious people and take them from check to report, in under a minute."""
    spec = write_demo(folder)
    out = Output(as_json=False, quiet=False)
    for title, command, more in (
        ("check", check, {"looks": False, "yes": False, "strict": False}),
        ("plan", plan, {"targets": {}, "earlier": (), "force": False, "verbose": False}),
        ("release", release, {"plan_folder": None, "yes": True, "force": True, "new_dataset": None, "again": False}),
        ("budget", budget, {"ledger": None, "larger": False, "reason": None, "yes": False}),
    ):
        out.say("", f"$ hdmm {title} {spec}{' --yes' if title == 'release' else ''}")
        context.invoke(command, spec=spec, as_json=False, quiet=False, **more)
    out.say("", f"Look at {load_spec(spec).output.folder / 'report.html'}; the specification is {spec}.")


for _command in (
    check,
    plan,
    release,
    studio,
    budget,
    query,
    show,
    rows,
    diff,
    combine_releases,
    report,
    init,
    schema,
    demo,
):
    app.add_command(_command)
