"""Serve the studio on this machine alone, at an address with a token, and open it in a browser."""

from __future__ import annotations

import multiprocessing
import secrets
import shutil
import socket
import tempfile
import webbrowser
from collections.abc import Callable
from html import escape
from pathlib import Path

import uvicorn

from hdmm.apps.studio.server import application
from hdmm.apps.studio.spec_file import StudioFile
from hdmm.base.exceptions import FileError

_HOST = "127.0.0.1"


def serve(file: StudioFile, *, port: int, browser: bool, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. Port 0 takes any that is free."""
    token = secrets.token_urlsafe(32)
    with _listening(port) as listener:
        number = listener.getsockname()[1]
        address = f"http://{_HOST}:{number}/#token={token}"
        say(f"The studio of {file.path} is at\n\n    {address}\n")
        say("Whoever has this address can spend the budget. Ctrl-C ends the studio.")
        served = application(file, token=token, port=number)
        config = uvicorn.Config(
            served, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none", http="h11"
        )
        folder = _opened(address) if browser else None
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            waits = any(not child.daemon for child in multiprocessing.active_children())
            say("A release has begun, and is finished first." if waits else "The studio has ended.")
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
        listener.listen()  # at once: until then, another user could take the port, and the page with its token
    except OSError as error:
        listener.close()
        raise FileError(
            f"Port {port} of {_HOST} cannot be used: {error.strerror}. Leave out --port to take one that is free."
        ) from None
    return listener


def _opened(address: str) -> Path:
    """Open a browser by a file that only this user can read: other users see the arguments of processes."""
    folder = Path(tempfile.mkdtemp(prefix="hdmm-studio-"))
    page = folder / "open.html"
    page.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><title>hdmm studio</title>'
        f'<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={escape(address)}">'
        f'<p><a href="{escape(address)}">Open the studio</a></p>',
        encoding="utf-8",
    )
    webbrowser.open(page.as_uri())
    return folder
