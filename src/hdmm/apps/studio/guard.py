"""Guard: who may speak to the studio. Everything but the page itself, which says nothing, needs the token.

A page of another site can make a browser send requests here, and can even make its own name lead here (DNS rebinding).
So the Host and Origin of every request must be the studio's own, and the token travels in a header, which no other site
can make a browser send; there is no cookie, because cookies are shared by all ports of a machine.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-hdmm-token"  # the name of a header  # nosec B105
MOST_BODY = 2**20
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_NAME = re.compile(r"(127\.0\.0\.1|localhost):([0-9]{1,5})")


def unexpected(wrong: Exception) -> str:
    """What is said of an error that nobody foresaw: its type alone."""
    return f"Something unexpected went wrong ({type(wrong).__name__}). Reload the page."


@final
@dataclass(frozen=True, slots=True)
class Guard:
    """An application behind its checks; `app` sees only requests that passed them."""

    app: ASGIApp
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is not None:
            code, why = refused
            await JSONResponse({"error": why}, status_code=code)(scope, receive, guarded)
            return
        try:
            await self.app(scope, receive, guarded)
        except Exception as wrong:  # its message or traceback is not for a terminal or a page (security O3)
            if not begun:
                await JSONResponse({"error": unexpected(wrong)}, status_code=500)(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """The code and the reason of a refusal; None if the request is the page's own."""
        if not self._is_here(headers.get("host", "")):
            return 421, "This studio is reached at 127.0.0.1 only. Open the address that the terminal shows."
        origin = headers.get("origin")
        writes = scope["method"] not in ("GET", "HEAD")
        if (writes or origin is not None) and not self._is_here((origin or "").removeprefix("http://")):
            return 403, "The request came from another page. Nothing was done."
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and writes:
            return 403, "The request came from another page. Nothing was done."
        if int(headers.get("content-length") or 0) > MOST_BODY:
            return 413, "The request is too large. Nothing was done."
        given = headers.get(TOKEN_HEADER, "")
        if scope["path"].startswith("/api/") and not secrets.compare_digest(given.encode(), self.token.encode()):
            return 403, "The token is missing or of an earlier studio. Open the address that the terminal shows now."
        return None

    def _is_here(self, name: str) -> bool:
        found = _NAME.fullmatch(name)
        return found is not None and int(found.group(2)) == self.port
