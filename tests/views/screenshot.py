"""Take the picture of the HTML page that docs/pictures.md shows, with the browser of the tests.

python tests/views/screenshot.py        # writes docs/report.png
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from test_report_in_browser import QUIET, Opened, browser_program

from et_sim.cli import main

TARGET = Path(__file__).resolve().parents[2] / "docs" / "report.png"


def take(folder: Path) -> None:
    """Simulate, write the page, choose a node, and keep what is above the ranks."""
    page = folder / "step.html"
    assert main(["demo", "--out", str(folder / "et-sim-demo")]) == 0
    assert main(["report", str(folder / "et-sim-demo" / "run"), "--html", str(page)]) == 0
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=browser_program(), args=list(QUIET))
        opened = Opened(browser, page, viewport={"width": 1120, "height": 1600})
        opened.page.get_by_label("find").fill("layer 3 gradient")
        opened.page.keyboard.press("Enter")
        opened.page.get_by_label("find").fill("")
        opened.page.locator("#chosen").click()
        opened.settle()
        bottom = opened.page.locator("#ranks").bounding_box()["y"]
        clip = {"x": 0, "y": 0, "width": 1120, "height": bottom - 8}
        opened.page.screenshot(path=TARGET, clip=clip, full_page=True)
        opened.close()
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        take(Path(temporary))
