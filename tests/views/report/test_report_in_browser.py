"""The page in a real browser: it draws, moves, chooses, prints, and reports no error.

Runs where playwright is installed and a Chromium or Chrome is found (Debian's package `chromium`);
ET_SIM_BROWSER may name another.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runs_to_show import pipeline, written

import et_sim
from et_sim.cli import main
from et_sim.views import open_run

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
WIDE = {"width": 1280, "height": 900}

pytestmark = pytest.mark.usefixtures("warm_engine")


def browser_program() -> str | None:
    """Return the first browser that is installed."""
    return os.environ.get("ET_SIM_BROWSER") or next(filter(None, map(shutil.which, PROGRAMS)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield a headless Chromium, or skip with a reason."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = browser_program()
    if program is None:
        pytest.skip("no Chromium here: install Debian's package chromium, or name one in ET_SIM_BROWSER")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=list(QUIET))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return pages of the demo and of a pipeline."""
    folder = tmp_path_factory.mktemp("pages")
    assert main(["demo", "--out", str(folder / "demo")]) == 0
    pipeline(folder / "stages", fold=False, detail="path")
    pages = {}
    for name, run in (("demo", folder / "demo" / "run"), ("stages", folder / "stages")):
        pages[name] = folder / f"{name}.html"
        assert main(["report", str(run), "--html", str(pages[name])]) == 0
    return pages


class Opened:
    """A page, with all messages of the browser about it."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self._context = browser.new_context(**{"viewport": WIDE} | options)
        self.page = self._context.new_page()
        self.messages: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on(
            "request",
            lambda request: self.messages.append(request.url) if request.url[:5] != "file:" else None,
        )
        self.page.goto(file.as_uri())
        self.settle()

    def settle(self) -> None:
        """Wait until the requested change is drawn."""
        self.page.wait_for_selector("#view[data-drawn]")
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def press(self, *keys: str) -> None:
        """Send keys to the timeline."""
        self.page.focus("#lanes")
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    @property
    def window(self) -> tuple[float, float]:
        """Return the time range that is shown."""
        view = self.page.locator("#view")
        return float(view.get_attribute("data-from")), float(view.get_attribute("data-to"))

    def colours(self) -> int:
        """Return the number of different colours that the timeline shows."""
        script = """() => {
          const lanes = document.getElementById("lanes");
          const copy = new OffscreenCanvas(lanes.width, lanes.height);
          const pen = copy.getContext("2d", { willReadFrequently: true });
          pen.drawImage(lanes, 0, 0);
          const dots = new Uint32Array(pen.getImageData(0, 0, lanes.width, lanes.height).data.buffer);
          return new Set(dots).size;
        }"""
        return int(self.page.evaluate(script))

    def lanes(self) -> dict[str, float]:
        """Return the place of the rows after scrolling to them."""
        self.page.locator(".canvases").evaluate("one => one.scrollIntoView({ block: 'center' })")
        box: dict[str, float] = self.page.locator("#lanes").bounding_box()
        return box

    def dot(self, x: float, y: float) -> tuple[int, ...]:
        """Return red, green and blue of the timeline at a place of its canvas."""
        script = """([x, y]) => {
          const lanes = document.getElementById("lanes");
          const copy = new OffscreenCanvas(lanes.width, lanes.height);
          const pen = copy.getContext("2d", { willReadFrequently: true });
          pen.drawImage(lanes, 0, 0);
          return [...pen.getImageData(x, y, 1, 1).data.slice(0, 3)];
        }"""
        return tuple(self.page.evaluate(script, [x, y]))

    def close(self) -> None:
        """Close the page, after checking that the browser reported no message."""
        self._context.close()
        assert self.messages == []


@pytest.fixture
def demo(browser: Any, files: dict[str, Path]) -> Iterator[Opened]:
    """Yield the demo's page."""
    opened = Opened(browser, files["demo"])
    yield opened
    opened.close()


def test_the_page_draws_without_a_word(demo: Opened) -> None:
    assert demo.window == (0, 52_428_540)
    assert demo.colours() > 5
    assert demo.page.locator(".still").is_hidden()
    assert demo.page.title() == "demo/run: 52.429 ms, et-sim"


@pytest.mark.deep
def test_buttons_and_keys_zoom_and_move(demo: Opened) -> None:
    demo.page.get_by_role("button", name="Zoom in").click()
    demo.settle()
    first, last = demo.window
    assert last - first == pytest.approx(52_428_540 / 1.6)
    demo.press("ArrowRight")
    assert demo.window[0] == pytest.approx(first + 0.15 * (last - first))
    demo.press("+", "+", "-")
    assert demo.window[1] - demo.window[0] == pytest.approx(52_428_540 / 1.6**2)
    demo.press("0")
    assert demo.window == (0, 52_428_540)
    demo.press(*["ArrowLeft"] * 3)
    assert demo.window == (0, 52_428_540)


@pytest.mark.deep
def test_the_wheel_zooms_around_the_pointer_and_dragging_moves(demo: Opened) -> None:
    box = demo.lanes()
    middle = box["x"] + 118 + (box["width"] - 118) / 2
    demo.page.mouse.move(middle, box["y"] + 20)
    demo.page.keyboard.down("Control")
    demo.page.mouse.wheel(0, -400)
    demo.page.keyboard.up("Control")
    demo.page.wait_for_function("document.getElementById('view').dataset.from > 0")
    first, last = demo.window
    assert (first + last) / 2 == pytest.approx(52_428_540 / 2, rel=1e-3)
    demo.page.mouse.down()
    demo.page.mouse.move(middle + 100, box["y"] + 20, steps=4)
    demo.page.mouse.up()
    demo.settle()
    moved = 100 * (last - first) / (box["width"] - 118)
    assert demo.window[0] == pytest.approx(first - moved, rel=1e-3)


@pytest.mark.deep
def test_choosing_a_node_shows_its_facts(demo: Opened) -> None:
    demo.press("Shift+ArrowDown")
    heading = demo.page.locator("#chosen h3")
    assert heading.inner_text() == "load batch"
    demo.press("Shift+ArrowDown", "Shift+ArrowRight")
    assert heading.inner_text() == "layer 1 forward"
    assert "rank 5, compute" in demo.page.locator("#chosen").inner_text()
    demo.press("f")
    first, last = demo.window
    assert last - first == pytest.approx(3 * 850_000, rel=0.05)
    demo.press("Escape")
    assert demo.page.locator("#chosen").is_hidden()


@pytest.mark.deep
def test_a_click_shows_the_node_under_it(demo: Opened) -> None:
    box = demo.lanes()
    moment = 1_150_000 + 850_000 / 2  # of rank 5, which is the first
    click = box["x"] + 118 + moment / 52_428_540 * (box["width"] - 118), box["y"] + 6 + 14 + 6
    demo.page.mouse.move(*click)
    assert demo.page.locator("#tip").inner_text() == "layer 1 forward: 850 µs, from 1.15 ms"
    demo.page.mouse.click(*click)
    demo.settle()
    assert demo.page.locator("#chosen h3").inner_text() == "layer 1 forward"
    region = demo.page.locator("#chosen").bounding_box()
    assert 0 <= region["x"] - click[0] <= 20
    assert 0 <= region["y"] - click[1] <= 30
    demo.page.get_by_role("button", name="let the node go").click()
    assert demo.page.locator("#chosen").is_hidden()


@pytest.mark.deep
def test_figures_of_a_node_at_the_edge_stay_on_the_page(demo: Opened) -> None:
    demo.page.get_by_label("find").fill("optimizer")
    demo.page.keyboard.press("Shift+Enter")
    demo.settle()
    region, room = (demo.page.locator(selector).bounding_box() for selector in ("#chosen", ".canvases"))
    assert region["x"] + region["width"] <= room["x"] + room["width"]
    assert region["y"] + region["height"] <= room["y"] + room["height"] + 1


@pytest.mark.deep
def test_short_names_of_rows_are_shown_in_full(browser: Any, files: dict[str, Path]) -> None:
    opened = Opened(browser, files["demo"], viewport={"width": 500, "height": 800})
    box = opened.lanes()
    opened.page.mouse.move(box["x"] + 20, box["y"] + 6 + 9)
    assert opened.page.locator("#tip").inner_text() == "rank 5, cpu"
    opened.close()


@pytest.mark.deep
def test_the_slowest_ranks_come_first_or_all_in_their_order(demo: Opened) -> None:
    def first() -> str:
        demo.press("Escape", "Shift+ArrowDown")
        return str(demo.page.locator("#chosen dd").first.inner_text())

    assert first() == "rank 5, cpu"
    demo.page.get_by_role("button", name="Slowest first").click()
    assert first() == "rank 0, cpu"


@pytest.mark.deep
def test_the_wheel_alone_scrolls_the_page_also_past_a_timeline_that_scrolls(
    browser: Any, files: dict[str, Path]
) -> None:
    opened = Opened(browser, files["demo"], viewport={"width": 1280, "height": 500})
    page = opened.page
    page.locator("#axis").evaluate("one => one.scrollIntoView({ block: 'center' })")
    box = page.locator("#body").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    before, window = page.evaluate("scrollY"), opened.window
    for _ in range(12):
        page.mouse.wheel(0, 200)
        page.wait_for_timeout(30)
    page.wait_for_function(f"scrollY > {before} + 100")
    assert opened.window == window
    opened.close()


@pytest.mark.deep
def test_search_counts_its_results_and_steps_through_them(demo: Opened) -> None:
    box, matches = demo.page.get_by_label("find"), demo.page.locator("#found")
    box.fill("optimizer")
    assert matches.inner_text() == "8 matches"
    demo.page.keyboard.press("Enter")
    assert matches.inner_text() == "1 of 8 matches"
    demo.page.keyboard.press("Shift+Enter")
    assert matches.inner_text() == "8 of 8 matches"
    demo.page.get_by_role("button", name="next match").click()
    assert matches.inner_text() == "1 of 8 matches"
    assert "rank 5" in demo.page.locator("#chosen").inner_text()
    box.fill("nothing is called so")
    assert matches.inner_text() == "no match"
    assert demo.page.get_by_role("button", name="next match").is_disabled()
    box.fill("")
    assert matches.inner_text() == ""


@pytest.mark.deep
def test_search_finds_by_name_and_kinds_are_highlighted(demo: Opened) -> None:
    demo.page.get_by_label("find").fill("optimizer")
    demo.page.keyboard.press("Enter")
    demo.settle()
    assert demo.page.locator("#chosen h3").inner_text() == "optimizer"
    button = demo.page.get_by_role("button", name="all reduce")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"


@pytest.mark.deep
def test_messages_lead_to_the_other_rank(browser: Any, files: dict[str, Path]) -> None:
    opened = Opened(browser, files["stages"])
    opened.page.get_by_label("find").fill("forward 0 send")
    opened.page.keyboard.press("Enter")
    opened.settle()
    assert "with ranks\n4" in opened.page.locator("#chosen").inner_text()
    opened.close()


ORANGE, BLUE, PURPLE, TRACK = (230, 159, 0), (0, 114, 178), (67, 53, 143), (238, 241, 245)
LEFT, TOP, HEIGHT = 118, 6, 18


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Rank 0 waits in an all-reduce for rank 1; then both compute for a few % of the time."""
    folder = tmp_path_factory.mktemp("truth")
    builders = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    for build, before in zip(builders, (1, 2000), strict=True):
        last = build.collective("all_reduce", 1 << 25, after=[build.compute("layer backward", micros=before)])
        for _ in range(1000):
            last = build.compute("a little", nanos=60, after=[last])
            last = build.collective("all_reduce", 64, name="small", after=[last])
    workload = et_sim.Workload.of([build.build() for build in builders])
    run = written(workload, folder / "run")
    assert main(["report", str(run), "--html", str(folder / "page.html")]) == 0
    return folder / "page.html", open_run(run)


@pytest.mark.deep
def test_waiting_is_thin_transfer_solid_backward_differs_and_rare_work_is_pale(
    browser: Any, truth: tuple[Path, Any]
) -> None:
    page, run = truth
    rows = run.table("timeline").to_pylist()
    summed, of_other = (row for row in rows if row["bytes"] == 1 << 25)
    pieces = [row for row in rows if row["name"] == "a little" and row["actor"] == 0][1:]
    assert (summed["actor"], summed["waiting_ns"], of_other["waiting_ns"]) == (0, 1_999_000, 0)
    opened = Opened(browser, page, color_scheme="light")
    opened.page.get_by_role("button", name="Slowest first").click()
    opened.settle()
    wide, communication, other = opened.lanes()["width"] - LEFT, TOP + HEIGHT + 1, TOP + 2 * (HEIGHT + 1) + 9

    def x(moment: float) -> int:
        return int(LEFT + moment / run.summary["makespan_ns"] * wide)

    began = summed["start_ns"] + summed["waiting_ns"]
    assert opened.dot(x(began / 2), communication + 2) == TRACK
    assert opened.dot(x(began / 2), communication + HEIGHT // 2) == ORANGE
    for height in (2, HEIGHT // 2, HEIGHT - 2):
        assert opened.dot(x(summed["end_ns"]) - 8, communication + height) == ORANGE
    assert opened.dot(x(1_000_000), other + 2) == PURPLE
    first, last = x(pieces[0]["start_ns"]), x(pieces[-1]["end_ns"])
    share = sum(row["end_ns"] - row["start_ns"] for row in pieces) / (
        pieces[-1]["end_ns"] - pieces[0]["start_ns"]
    )
    assert share < 0.06
    for column in range(first + 2, last - 2, 7):
        red = opened.dot(column, TOP + HEIGHT // 2)[0]
        assert 0.05 < (TRACK[0] - red) / (TRACK[0] - BLUE[0]) < 0.2
    opened.close()


@pytest.mark.deep
def test_the_critical_path_can_be_highlighted(browser: Any, files: dict[str, Path]) -> None:
    opened = Opened(browser, files["stages"])
    button = opened.page.get_by_role("button", name="critical path")
    before = opened.colours()
    button.click()
    opened.settle()
    assert button.get_attribute("aria-pressed") == "true"
    assert opened.colours() != before  # other nodes fade
    opened.page.get_by_label("find").fill("head")
    opened.page.keyboard.press("Enter")
    opened.settle()
    assert "critical path\non it" in opened.page.locator("#chosen").inner_text()
    opened.close()


@pytest.mark.deep
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_have_enough_contrast(browser: Any, files: dict[str, Path], scheme: str) -> None:
    opened = Opened(browser, files["demo"], color_scheme=scheme)
    script = """() => ["--ink", "--muted", "--card"].map((name) =>
      getComputedStyle(document.documentElement).getPropertyValue(name).trim())"""
    ink, muted, card = (_luminance(colour) for colour in opened.page.evaluate(script))
    assert (ink < card) is (scheme == "light")
    for text in (ink, muted):
        assert (max(text, card) + 0.05) / (min(text, card) + 0.05) > 4.5  # WCAG AA
    opened.close()


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.deep
def test_a_narrow_screen_is_not_wider_than_it_is(browser: Any, files: dict[str, Path]) -> None:
    opened = Opened(browser, files["demo"], viewport={"width": 360, "height": 700})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    opened.close()


@pytest.mark.deep
@pytest.mark.parametrize("name", ["demo", "stages"])
def test_a_window_of_700_pixels_shows_whole_tables(browser: Any, files: dict[str, Path], name: str) -> None:
    opened = Opened(browser, files[name], viewport={"width": 700, "height": 900})
    script = """() => [...document.querySelectorAll("#operations .scroll, #ranks .scroll, #groups .scroll")]
      .map((one) => one.scrollWidth - one.clientWidth)"""
    overflows = opened.page.evaluate(script)
    assert overflows == [0] * len(overflows)
    opened.close()


@pytest.mark.deep
def test_on_paper_the_still_picture_takes_the_place_of_the_other(demo: Opened) -> None:
    demo.page.emulate_media(media="print")
    assert demo.page.locator("#view").is_hidden()
    assert demo.page.locator(".still svg").is_visible()
    assert demo.page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.deep
def test_without_scripts_everything_is_there_but_the_moving_timeline(
    browser: Any, files: dict[str, Path]
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(files["demo"].as_uri())
    assert page.locator(".still svg").is_visible()
    assert page.locator("#view").is_hidden()
    context.close()


@pytest.mark.deep
def test_every_part_has_a_name_and_the_keyboard_reaches_every_control(demo: Opened) -> None:
    for part in demo.page.locator("section").all():
        assert demo.page.locator(f"#{part.get_attribute('aria-labelledby')}").inner_text()
    reached = set()
    demo.page.keyboard.press("Tab")
    for _ in range(12):
        reached.add(demo.page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        demo.page.keyboard.press("Tab")
    assert {
        "to the timeline",
        "Zoom in",
        "Zoom out",
        "Everything",
        "search",
        "compute",
        "all reduce",
        "lanes",
    } <= reached


@pytest.mark.deep
def test_on_paper_names_that_are_cut_elsewhere_stand_in_full(browser: Any, files: dict[str, Path]) -> None:
    opened = Opened(browser, files["stages"])
    script = """() => [...document.querySelectorAll("abbr")].map((one) =>
      [one.title, getComputedStyle(one, "::after").content])"""
    titles = opened.page.evaluate(script)
    assert titles
    assert all(content == "none" for _, content in titles)
    opened.page.emulate_media(media="print")
    assert all(content == f'"{title}"' for title, content in opened.page.evaluate(script))
    opened.close()
