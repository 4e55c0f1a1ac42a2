"""A second user of the machine, who tries every port that a process and its children listen on (security N11)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ATTACK = """
import asyncio, http.client, json, os, ssl, sys
from concurrent.futures import ThreadPoolExecutor
from distributed import Security
from distributed.core import connect
from distributed.protocol.pickle import dumps

NOBODY = 65534
FUNCTION, ARGUMENTS, NAMED = dumps(os.getcwd), dumps(()), dumps({})
ports, paths = json.loads(sys.argv[1])
mine = Security.temporary()  # a certificate, but not one of that cluster
plain = ssl.create_default_context()
plain.check_hostname, plain.verify_mode = False, ssl.CERT_NONE
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


async def spoken(address, **how):
    # what a client of Dask does: connect, ask who is there, and have a function run
    comm = await asyncio.wait_for(connect(address, timeout=10, **how), 20)
    told = []
    for message in ({"op": "identity"}, {"op": "run", "function": FUNCTION, "args": ARGUMENTS, "kwargs": NAMED}):
        await comm.write(message | {"reply": True})
        told.append(str(await asyncio.wait_for(comm.read(), 30)))
    return " ".join(told)


def requested(port, context):
    told = []
    for path in paths:  # the first fails where nobody speaks HTTP
        kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
        asked = kind("127.0.0.1", port, timeout=60, **({} if context is None else {"context": context}))
        asked.request("GET", path)
        answer = asked.getresponse()
        said = answer.read().decode()
        if answer.status not in (403, 404):
            told.append(f"{path}: {answer.status} {said}")
    return " ".join(told)


def ways(port):
    tcp, tls = f"tcp://127.0.0.1:{port}", f"tls://127.0.0.1:{port}"
    yield port, "plain", lambda: asyncio.run(spoken(tcp))
    yield port, "no certificate", lambda: asyncio.run(spoken(tls, ssl_context=plain))
    yield port, "other certificate", lambda: asyncio.run(spoken(tls, **mine.get_connection_args("client")))
    yield port, "http", lambda: requested(port, None)
    yield port, "https", lambda: requested(port, plain)


def tried(way):
    try:
        return [*way[:2], way[2]()]
    except Exception:  # whatever it is, the port did not obey
        return [*way[:2], ""]


with ThreadPoolExecutor(32) as pool:
    found = list(pool.map(tried, [way for port in ports for way in ways(port)]))
print(json.dumps([each for each in found if each[2]]), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Listening:
    """What the processes of a tree listen on: ports of TCP, with the address, and sockets of Unix."""

    tcp: dict[int, str]
    unix: list[str]


def tree(pid: int) -> list[int]:
    """The process and all that it has started."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended since
            continue
        parents.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def listening(pid: int) -> Listening:
    """The sockets that a process and its children listen on."""
    mine = {
        os.readlink(fd)
        for each in tree(pid)
        for fd in Path(f"/proc/{each}/fd").glob("*")
        if os.path.lexists(fd) and os.readlink(fd).startswith("socket:")
    }
    tcp: dict[int, str] = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                address, port = fields[1].split(":")
                tcp[int(port, 16)] = address
    unix = [
        line
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]
        if int(line.split()[3], 16) & 0x10000 and f"socket:[{line.split()[6]}]" in mine
    ]
    return Listening(tcp, unix)


def obeyed(ports: list[int], paths: list[str]) -> list[Any]:
    """What the second user was told or could do, by port and by way; nothing if no port obeys.

    Where tests do not run as root, it is this user, without the certificate: ports do not tell users apart.
    """
    arguments = [sys.executable, "-c", ATTACK, json.dumps([ports, paths])]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def shown_to_all(pid: int) -> str:
    """What other users see of the processes of a tree: their arguments."""
    return " ".join(re.sub("\0", " ", Path(f"/proc/{each}/cmdline").read_text()) for each in tree(pid))
