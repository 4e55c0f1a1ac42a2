"""Other libraries, each run in an interpreter that has it: a job goes in as JSON, and answers come out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

OTHERS = {"opendp": ("OpenDP", "opendp[polars]"), "tumult": ("Tumult Analytics", "tmlt.analytics")}


def answered(name: str, python: str, job: dict[str, object]) -> dict[str, object] | str:
    """What another library answers; or why it does not."""
    script = Path(__file__).with_name(f"with_{name}.py")
    title, package = OTHERS[name]
    try:
        run = subprocess.run([python, str(script)], input=json.dumps(job), capture_output=True, text=True, check=False)
    except OSError as wrong:
        return f"{title} did not run: {python}: {wrong.strerror}. Give the path of a Python with --{name}."
    if run.returncode == 0:
        return json.loads(run.stdout)
    last = run.stderr.strip().splitlines()[-1:] or ["It ended without a word."]
    if "ModuleNotFoundError" in last[0] or "ImportError" in last[0]:
        return f"{title} is not installed here. Install {package} in an environment, and give its Python with --{name}."
    return f"{title} did not run: {last[0]}"
