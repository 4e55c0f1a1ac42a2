"""Pictures of the studio: hdmm's demonstration, planned and released in a headless browser.

Run with `python -m examples.studio FOLDER`, with Chromium on the PATH and hdmm[dev] installed. It takes a minute.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from hdmm.apps.demo import write_demo

WIDE = {"width": 1280, "height": 960}
PHONE = {"width": 390, "height": 844}
SQL = "SELECT state, COUNT(*)\nFROM people\nWHERE agee BETWEEN 13 AND 19\nGROUP BY state"


def pictures(folder: Path) -> None:
    """Plan and release the demonstration in the studio, and take a picture of each step."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit("There is no chromium on the PATH. Install it (Debian: apt install chromium) to take screenshots.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        spec = write_demo(Path(place) / "demo", persons=20_000)
        with _served(spec) as address, sync_playwright() as browsers:
            opened = browsers.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            view = _opened(opened, address, WIDE, "light")
            _plan(view)
            _shot(view, folder / "studio-light.png")
            _write_sql(view)
            _shot(view, folder / "studio-sql.png")
            view.keyboard.press("Escape")
            for name, size, scheme in (("dark", WIDE, "dark"), ("phone", PHONE, "light")):
                other = _opened(opened, address, size, scheme)
                if size is PHONE:
                    other.locator("#table-list > li").nth(0).scroll_into_view_if_needed()
                    other.evaluate("scrollBy(0, 500)")
                _shot(other, folder / f"studio-{name}.png")
                other.context.close()
            _release(view, folder / "studio-release.png")
            opened.close()


@contextmanager
def _served(spec: Path) -> Generator[str]:
    """The address of a studio, which is ended at the end."""
    sources = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-u", "-m", "hdmm", "studio", spec.name, "--no-browser"]
    with subprocess.Popen(
        command, cwd=spec.parent, env=os.environ | {"PYTHONPATH": sources}, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield next(found.group() for line in server.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            server.terminate()


def _opened(browser: Any, address: str, size: dict[str, int], scheme: str) -> Any:
    view = browser.new_context(viewport=size, color_scheme=scheme).new_page()
    view.set_default_timeout(120_000)
    view.goto(address)
    view.locator("#table-list > li").first.wait_for()
    view.wait_for_timeout(2000)
    return view


def _plan(view: Any) -> None:
    view.get_by_role("button", name="Plan", exact=True).click()
    view.locator(".margins").first.wait_for()
    view.locator("#table-0-ask").check()
    view.locator("#table-0-exact").fill("60")
    view.locator("#table-0-exact").press("Tab")
    view.evaluate("scrollTo(0, 0)")


def _write_sql(view: Any) -> None:
    view.get_by_role("button", name="Add a table").click()
    view.get_by_label("Name").fill("teens")
    view.get_by_label("Title").fill("Teenagers by state")
    view.get_by_label("By SQL").check()
    view.get_by_role("textbox", name="SQL").fill(SQL)
    view.locator("#sql-marks mark").wait_for()


def _release(view: Any, picture: Path) -> None:
    view.get_by_role("button", name="Undo").click()
    view.get_by_role("button", name="Release…").click()
    view.locator("#release-dialog[open]").wait_for()
    _shot(view, picture)
    view.get_by_label("Type the amount to confirm").fill("1")
    view.get_by_role("button", name=re.compile("Spend .* and release")).click()
    view.get_by_role("link", name="Open the report").wait_for()


def _shot(view: Any, path: Path) -> None:
    """A picture that says nothing about the machine: the folder of the file is left out."""
    view.evaluate(
        "() => { for (const e of document.querySelectorAll('#source, #offer-lead, #offer-facts dd'))"
        " e.textContent = e.textContent.replace(/\\S*\\/demo\\//g, '') }"
    )
    view.screenshot(path=path)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    pictures(parser.parse_args().folder)


if __name__ == "__main__":
    main()
