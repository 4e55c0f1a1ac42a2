"""C1: what is installed is pinned by hash, as pyproject.toml asks for it, and the pins name no place or machine."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = {  # as `make lock` compiles them
    "user": ["studio", "xlsx"],  # what the README shows
    "dev": ["dev"],
    "bench": ["bench"],
    "docs": ["docs"],
    "referee": ["referee"],
    "tools": ["tools"],
}
_LINE = re.compile(r"([a-z0-9-]+)==(\S+)(?: ; (.+?))?((?: --hash=sha256:[0-9a-f]{64})+)")


def pins(name: str) -> list[tuple[str, Version, Marker | None]]:
    """The packages of a lock with their versions and markers; every line must be one, with hashes."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace(" \\\n", "")
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _LINE.fullmatch(re.sub(r" +", " ", line))
            assert match, f"{line[:80]} is no pin with hashes"
            found.append((match[1], Version(match[2]), Marker(match[3]) if match[3] else None))
    return found


def installed(name: str, python: str) -> dict[str, Version]:
    """What pip would take from a lock with a version of Python on Linux."""
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0"}
    environment |= {"sys_platform": "linux", "platform_system": "Linux", "implementation_name": "cpython"}
    chosen = [(package, version) for package, version, m in pins(name) if m is None or m.evaluate(environment)]
    assert len(dict(chosen)) == len(chosen), "a package is pinned twice"
    return dict(chosen)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("name", EXTRAS)
def test_every_dependency_is_pinned_in_its_range(name: str, python: str) -> None:
    asked = [*PROJECT["project"]["dependencies"]]
    asked += [each for extra in EXTRAS[name] for each in PROJECT["project"]["optional-dependencies"][extra]]
    if name in ("user", "dev"):
        asked += PROJECT["build-system"]["requires"]  # the project is built without isolation
    found = installed(name, python)
    for text in asked:
        requirement = Requirement(text)
        version = found.get(canonicalize_name(requirement.name))
        assert version is not None, f"{text} is not in requirements/{name}.txt: run make lock"
        assert requirement.specifier.contains(version), f"{text} is pinned at {version}: run make lock"


@pytest.mark.parametrize(
    ("one", "name"),
    [("dev", "user"), ("dev", "bench"), ("dev", "docs"), ("dev", "referee"), ("dev", "tools"), ("bench", "referee")],
)
def test_locks_agree(one: str, name: str) -> None:
    """One environment holds them all."""
    first, other = installed(one, "3.11"), installed(name, "3.11")
    assert {package: other[package] for package in first.keys() & other.keys()}.items() <= first.items()


def test_locks_name_no_place() -> None:
    locks = sorted((ROOT / "requirements").iterdir())
    assert [path.stem for path in locks] == sorted(EXTRAS)
    for path in locks:
        text = path.read_text()
        for word in ("://", "file:", "index-url", "find-links", "trusted-host", " @ ", "/"):
            assert word not in text, f"{path.name} holds {word!r}"


def test_the_makefile_installs_by_hash_only() -> None:
    lines = [line.strip() for line in (ROOT / "Makefile").read_text().splitlines() if line.strip().startswith("$(PIP)")]
    assert len(lines) >= 6
    for line in lines:
        assert "--require-hashes" in line or ("--no-deps" in line and "--no-build-isolation" in line)


def test_a_user_gets_no_tools_of_developers() -> None:
    """`make demo` installs what hdmm asks for and what builds it; `make test` completes that environment."""
    extras = PROJECT["project"]["optional-dependencies"]
    tools = {Requirement(text).name for text in extras["dev"]}
    used = {Requirement(text).name for extra in EXTRAS["user"] for text in extras[extra]}
    assert not (tools - used - {"editables", "hatchling"}) & set(installed("user", "3.11"))
    assert set(installed("user", "3.11")) <= set(installed("dev", "3.11"))
    text = (ROOT / "Makefile").read_text()
    assert "demo: $(BIN)/.user " in text
    assert "$(BIN)/.installed: $(BIN)/.user requirements/dev.txt" in text


def test_bandit_skips_nothing_without_a_reason() -> None:
    """`make lint` runs bandit on src; every exception names its rule and its reason."""
    assert "$(BIN)/bandit" in (ROOT / "Makefile").read_text()
    assert set(PROJECT["tool"]["bandit"]) == {"targets"}
    for path in (ROOT / "src").rglob("*.py"):
        for line in path.read_text().splitlines():
            if "# nosec" in line:
                assert re.search(r"# \w.+  # nosec B[0-9]{3}$", line), f"{path.name}: {line.strip()}"


def test_bandit_finds_every_exception_needed() -> None:
    """Bandit warns of an exception where nothing is found: such warnings would hide others."""
    excepted = [str(path) for path in (ROOT / "src").rglob("*.py") if "# nosec" in path.read_text()]
    done = subprocess.run(
        [sys.executable, "-m", "bandit", "--quiet", *excepted], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
