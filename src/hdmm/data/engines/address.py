"""Where a table is: a database by its URL without the password, a file by its path; and why it cannot be opened.

The messages of drivers are never shown, because they may hold what the URL holds: they are only looked through for
known words. A URL that cannot be taken apart with certainty is not shown in parts either, since a password with a / or
an @ in it would be taken for a host or a database.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import final
from urllib.parse import parse_qs, unquote, urlsplit

_PLAIN = re.compile(r"[\w.%+ -]*")
_HOST = re.compile(r"[\w.:-]*|/[\w./ -]*")  # a name, or the folder of a socket
_SECRET = re.compile(r"(?<=://)([^/?#@:]*):.*@")  # up to the last @, because a password may hold others
_IN_FILES = ("duckdb://", "sqlite://")
_PORTS = {"postgres": 5432, "postgresql": 5432}
# Options of a URL that decide which rows are read, and others that hold no secret; all others may be one.
_DECIDING = {"host", "hostaddr", "port", "dbname", "database", "user", "schema", "options", "service"}
_HARMLESS = {"sslmode", "connect_timeout", "application_name", "gssencmode", "channel_binding", "client_encoding"}
_SECRET_OPTION = re.compile("pass|pwd|token|secret|signature|^sig$|credential|(?<!ssl)key", re.IGNORECASE)
_ENVIRONMENT = ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGOPTIONS", "PGSERVICE")  # in place of what a URL lacks

_SILENT = "nothing answers at {host}, {port}. Check both, and whether the server runs."
_SLOW = "{host}, {port} does not answer in time. Check both, and the network."
_UNKNOWN = "the name of {host} is not known. Check the host in the URL, and the network."
# Words of a driver's message, and what they mean. The first that is found counts.
_REASONS = {
    "no password supplied": "{user} needs a password, and none was given. Put it into ~/.pgpass or PGPASSWORD.",
    "authentication failed": "the password is wrong, or there is no {user}. Check both; the password may also come "
    "from ~/.pgpass or PGPASSWORD.",
    "no pg_hba.conf entry": "the server lets nobody in from here as {user}. Ask its administrator.",
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
        if not (_HOST.fullmatch(host) and _PLAIN.fullmatch(database) and _PLAIN.fullmatch(user)):
            return None
        if parts.fragment or "@" in parts.query:  # a password that holds # or ? ends where the host seems to begin
            return None
        return cls(
            f"host {host!r}" if host else "the local server",
            f"port {port}" if port else "default port",
            f"database {database!r}" if database else "default database",
            f"user {user!r}" if user and parts.scheme in _PORTS else "the user of the URL" if user else "default user",
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
    """A URL as messages may show it: whatever may be a password, a token or a key is left out.

    >>> without_password("postgres://analyst:secret@db/census"), without_password("postgres://db?password=x")
    ('postgres://analyst:…@db/census', 'postgres://…')
    >>> without_password("https://token@host/rows?signature=x"), without_password("postgres://db/census?sslkey=k.pem")
    ('https://…@host/rows?…', 'postgres://db/census?…')
    """
    if "password" in url.lower():
        return re.sub("(?<=://).*", "…", url)
    shown = _SECRET.sub(rf"\1{hidden}@", url)
    if url.partition("://")[0] not in _PORTS:
        shown = re.sub("(?<=://)[^/?#]*@", "…@", shown)
    return shown if _options(url) <= _DECIDING | _HARMLESS else re.sub("[?#].*", "?…", shown)


def is_address(source: str) -> bool:
    """Whether a source may be more than a path: the address of a server, which may hold a password."""
    return "://" in source or "@" in source or "password" in source.lower()


def has_secret(url: str) -> bool:
    """Whether a password, a token or a key is written into a URL, as far as its form shows.

    >>> has_secret("postgres://analyst:secret@db/census"), has_secret("postgres://analyst:@db/census?sslkey=k.pem")
    (True, False)
    """
    before = re.match("[^:]*://(.*)@", url)
    named = before is not None and (before[1] if url.partition("://")[0] not in _PORTS else before[1].partition(":")[2])
    return bool(named) or any(map(_SECRET_OPTION.search, _options(url)))


def public_address(url: str) -> str | None:
    """What of a URL decides which rows are read, without anything secret; None if that is not certain.

    >>> public_address("postgresql://analyst:secret@DB/census?sslmode=require") == public_address(
    ...     "postgres://analyst@db:5432/census"
    ... )
    True
    >>> public_address("postgres://db/census?unheard=of") is None
    True
    """
    found = Address.of(url)
    if found is None or not _options(url) <= _DECIDING | _HARMLESS | {"password"}:
        return None
    scheme = url.partition("://")[0]
    if scheme not in _PORTS and "@" in url:  # what stands before @ may be a token
        return None
    given = parse_qs(urlsplit(url).query)
    deciding = sorted((name, values) for name, values in given.items() if name in _DECIDING)
    around = [os.environ.get(name) for name in _ENVIRONMENT] if scheme in _PORTS else []
    parts = [found.host, found.port, found.database, found.user]
    return json.dumps(["postgres" if scheme in _PORTS else scheme, parts, deciding, around])


def place_of(source: str | os.PathLike[str], table: str | None) -> str | None:
    """Where a table is, in a text without passwords; None if a URL cannot be taken apart with certainty.

    A file is known by its own path, whatever links lead to it.
    """
    text = os.fspath(source)
    scheme = next((each for each in _IN_FILES if text.startswith(each)), "")
    if scheme or "://" not in text:
        where = f"file {os.path.realpath(Path(text.removeprefix(scheme)))}"
    else:
        address = public_address(text)
        if address is None:
            return None
        where = f"address {address}"
    return json.dumps([where, table])


def _options(url: str) -> set[str]:
    """The names of the options after ? in a URL; anything else there, or a fragment, counts as one without a name."""
    after = re.search("[?#](.*)", url)
    if after is None:
        return set()
    return {name if equals else "" for name, equals, _ in (each.partition("=") for each in after[1].split("&"))}
