"""Where a database is, by its URL without the password; and why it cannot be opened.

The messages of drivers are never shown, because they may hold what the URL holds: they are only looked through for
known words. A URL that cannot be taken apart with certainty is not shown in parts either, since a password with a / or
an @ in it would be taken for a host or a database.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final
from urllib.parse import parse_qs, unquote, urlsplit

_PLAIN = re.compile(r"[\w.%+ -]*")
_HOST = re.compile(r"[\w.:-]*|/[\w./ -]*")  # a name, or the folder of a socket
_SECRET = re.compile(r"(?<=://)([^/?#@:]*):.*@")  # up to the last @, because a password may hold others
_PORTS = {"postgres": 5432, "postgresql": 5432}

_SILENT = "nothing answers at {host}, {port}. Check both, and whether the server runs."
_SLOW = "{host}, {port} does not answer in time. Check both, and the network."
_UNKNOWN = "the name of {host} is not known. Check the host in the URL, and the network."
# Words of a driver's message, and what they mean. The first that is found counts.
_REASONS = {
    "no password supplied": "{user} needs a password, and none was given. Put it into ~/.pgpass or PGPASSWORD.",
    "authentication failed": "the password is wrong, or there is no {user}. Check both; the password may also come "
    "from ~/.pgpass or PGPASSWORD.",
    "no pg_hba.conf entry": "the server lets nobody in from here as {user}. Ask its keeper.",
    r'role ".*" does not exist': "there is no {user}. Check the name before @ in the URL.",
    r'database ".*" does not exist': "the server has no {database}. Check the name at the end of the URL.",
    "(resolve|translate) host": _UNKNOWN,
    "refused|no such file": _SILENT,
    "timeout|timed out": _SLOW,
    "unreachable|no route": "{host} cannot be reached. Check the host, and the network.",
    "ssl": "the server and this URL do not agree on encryption. Check sslmode in the URL.",
    "too many": "the server has too many connections. Try again later.",
    "starting up": "the server is just starting. Try again in a minute.",
}


@final
@dataclass(frozen=True, slots=True)
class Address:
    """The public parts of a URL, each as words; a part that it does not name is what the driver takes by itself."""

    host: str
    port: str
    database: str
    user: str

    @classmethod
    def of(cls, url: str) -> Address | None:
        """The parts of a URL; None if one of them might be a piece of a password.

        >>> Address.of("postgres://analyst:secret@db.example.org/census")
        Address(host="host 'db.example.org'", port='port 5432', database="database 'census'", user="user 'analyst'")
        >>> Address.of("postgres://analyst:sec/ret@db.example.org/census") is None
        True
        """
        try:
            parts = urlsplit(url)
            more = {name: values[0] for name, values in parse_qs(parts.query).items()}
            host = parts.hostname or more.get("host", "")
            port = parts.port or int(more.get("port", _PORTS.get(parts.scheme, 0)))
        except ValueError:
            return None
        database = unquote(parts.path.lstrip("/")) or more.get("dbname", "")
        user = unquote(parts.username or "") or more.get("user", "")
        if not (_HOST.fullmatch(host) and _PLAIN.fullmatch(database) and _PLAIN.fullmatch(user)) or parts.fragment:
            return None
        return cls(
            f"host {host!r}" if host else "the local server",
            f"port {port}" if port else "default port",
            f"database {database!r}" if database else "default database",
            f"user {user!r}" if user else "default user",
        )


def why_closed(url: str, wrong: Exception) -> str:
    """Why a database at a URL cannot be opened, and what to do, without any part of the driver's own message."""
    found = Address.of(url)
    if found is None:
        return (
            "its URL cannot be taken apart. In a name or password, write % / ? # : and @ as %25 %2F %3F %23 %3A and "
            "%40, or put the password into ~/.pgpass or PGPASSWORD."
        )
    for words, reason in _REASONS.items():
        if re.search(words, str(wrong), re.IGNORECASE):
            return reason.format(host=found.host, port=found.port, database=found.database, user=found.user)
    return (
        f"opening {found.database} on {found.host}, {found.port}, as {found.user} failed ({type(wrong).__name__}). "
        "Check each of them."
    )


def without_password(url: str, hidden: str = ":…") -> str:
    """A URL as messages may show it: whatever may be a password is left out.

    >>> without_password("postgres://analyst:secret@db/census"), without_password("postgres://db?password=x")
    ('postgres://analyst:…@db/census', 'postgres://…')
    """
    return re.sub("(?<=://).*", "…", url) if "password" in url.lower() else _SECRET.sub(rf"\1{hidden}@", url)
