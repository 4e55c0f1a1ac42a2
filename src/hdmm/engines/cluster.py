"""Dask on this machine: a cluster that obeys this process and nobody else (security N11).

Whoever can speak to a scheduler or a worker can run code there, and take the key of a release. Ports of a machine do
not tell its users apart, so both sides of every connection must show a certificate that was made for this cluster and
is in its memory only. The ports for pages, which Dask always opens, answer nothing. The folders of workers are private,
because Dask imports modules from them; by default, they would be in a folder that anybody could have made first.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
import weakref
from typing import Any

from hdmm.base.exceptions import DataError

_KEEPING = {"MALLOC_MMAP_THRESHOLD_": 1 << 25, "MALLOC_TRIM_THRESHOLD_": 1 << 30, "OMP_THREAD_LIMIT": 1}
"""Environment of workers that keep what a task frees for the next, because fresh pages took half of the processor's
time, and that take one core per task."""
_SAFE = frozenset({"tls", "inproc"})  # kinds of addresses: encrypted with certificates, or inside this process


def cluster_here(**options: Any) -> Any:
    """A LocalCluster, by default of as many processes as there are cores; `options` are its own."""
    distributed, dask = importlib.import_module("distributed"), importlib.import_module("dask")
    folder = tempfile.mkdtemp(prefix="hdmm-workers-")
    private = {
        "temporary-directory": folder,
        "distributed.nanny.pre-spawn-environ": _KEEPING,
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    try:
        with dask.config.set(private):
            cluster = distributed.LocalCluster(
                security=True, dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False}, **options
            )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(cluster, shutil.rmtree, folder, ignore_errors=True)
    return cluster


def refuse_unencrypted(address: str) -> None:
    """Raise DataError unless what is sent to this address can be read by nobody else."""
    kind = importlib.import_module("distributed.comm").parse_address(address)[0]
    if kind not in _SAFE:
        raise DataError(
            f"The scheduler at {address!r} is reached without encryption and certificates: whoever can connect to it "
            "or to its workers can take the key of the release, and with it the exact counts. Start scheduler and "
            "workers with Dask's TLS, and give an address that starts with tls://. If nobody else can reach them, add "
            "--unencrypted (unencrypted=True)."
        )
