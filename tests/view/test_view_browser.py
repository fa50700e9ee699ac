"""The page in a real headless Chromium: every page, filters, trees, deep links, hostile text, accessibility.

`make browser` installs what these need. `ROLLWRIGHT_SCREENSHOTS=FOLDER` keeps a picture of every page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from view_help import HOSTILE, TOOL, V01

from rollwright.view.run import open_runs
from rollwright.view.server import Viewer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update")  # fmt: skip
PAGES = {
    "start": "",
    "overview": "run/1/overview",
    "toy": "run/0/overview",
    "groups": "run/0/groups",
    "rollouts": "run/1/rollouts?where=reward+%3E%3D+0&sort=num_sampled&desc=1",
    "tree": "run/1/group/train/0/0?node=rooms%2Ftrain%2F0%230%2F0.0",
    "rollout": "run/1/rollout/train/0/0/0",
    "hostile": "run/1/rollout/train/0/1/1?colour=entropy",
    "compare": "compare/0/1",
    "diff": "diff?a=1%2Ftrain%2F0%2F0%2F0&b=1%2Ftrain%2F0%2F0%2F1",
}
SIZES = {"desktop": (1280, 900), "phone": (390, 800)}


def chromium() -> str:
    """Return the path of this machine's Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.fail("there is no Chromium; `make browser` installs one")


@pytest.fixture(scope="module")
def viewer(toy_path: Path, hostile_path: Path) -> Iterator[Viewer]:
    with Viewer(open_runs([toy_path, hostile_path])).running() as viewer:
        yield viewer


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(QUIET))
        yield browser
        browser.close()


Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, viewer: Viewer) -> Iterator[Open]:
    """Open an address of the page; at the end no script has failed, and nothing was asked of another host."""
    contexts, problems = [], []

    def opened(path: str, size: str = "desktop", scheme: str = "light") -> Any:
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda m: m.type == "error" and "400" not in m.text and problems.append(m.text))
        page.on("request", lambda r: r.url.startswith(viewer.url) or problems.append(f"asked {r.url}"))
        page.on("dialog", lambda dialog: (problems.append("a dialog was opened"), dialog.dismiss()))
        page.goto(f"{viewer.url}#/{path}")
        page.wait_for_selector("main .page > :not(p.dim)")
        page.wait_for_load_state("networkidle")
        return page

    opened.problems = problems
    yield opened
    hurt = [page.evaluate("window.hurt") for context in contexts for page in context.pages]
    for context in contexts:
        context.close()
    assert not any(hurt), f"a text ran as a script: {hurt}"
    assert not problems, problems


def text(page: Any, selector: str = "main") -> str:
    return page.inner_text(selector)


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("desktop", "dark"), ("phone", "light")])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_and_axe_finds_no_serious_fault(open_page: Open, name: str, size: str, scheme: str):
    """Oracle: axe-core. Kills: a control without a name, text too pale, a page wider than a phone."""
    page = open_page(PAGES[name], size, scheme)
    page.wait_for_timeout(300)  # charts draw themselves once their width is known
    if folder := os.environ.get("ROLLWRIGHT_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}-{size}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert not page.query_selector(".error:not(.hidden)")
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [
        (v["id"], [(n["target"], n["failureSummary"]) for n in v["nodes"]][:3])
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert not serious, json.dumps(serious, indent=1)
    assert len(found["violations"]) < 4


def test_a_condition_filters_sorts_and_stands_in_the_address(open_page: Open):
    """Oracle: hand. Kills: a filter that the address does not name, an error that stays hidden."""
    page = open_page("run/1/rollouts")
    assert "10 rollouts" in text(page)
    page.keyboard.press("/")
    page.keyboard.type("reward is null")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=2 rollouts fulfil it")
    assert "where=reward+is+null" in page.url
    page.fill("input[name=where]", "reward =")
    page.keyboard.press("Enter")
    page.wait_for_selector(".error:not(.hidden)")
    assert "is no condition" in text(page, ".error")
    page.click("button:text-is('all')")
    page.wait_for_selector("text=10 rollouts")
    page.click("[role=columnheader] button:text('num sampled')")
    page.wait_for_timeout(300)
    assert (
        page.get_attribute("[role=columnheader]:has(button:text('num sampled'))", "aria-sort") == "descending"
    )
    counts = page.evaluate(
        "[...document.querySelectorAll('.row')].map((r) => Number(r.children[6].textContent))"
    )
    assert counts == sorted(counts, reverse=True) and len(counts) == 10
    again = open_page(page.url.partition("#/")[2])
    assert (
        again.get_attribute("[role=columnheader]:has(button:text('num sampled'))", "aria-sort")
        == "descending"
    )


def test_keys_go_from_the_list_to_a_rollout_and_back(open_page: Open):
    """Oracle: hand. Kills: a key that does nothing, a row that opens another."""
    page = open_page("run/1/rollouts")
    page.click("body", position={"x": 5, "y": 5})
    for key in ("j", "j", "k", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("h1:text('Rollout 1 of rooms/train/0#0')")
    page.keyboard.press("n")
    page.wait_for_selector("h1:text('Rollout 2 of rooms/train/0#0')")
    page.keyboard.press("b")
    page.wait_for_selector("svg .nodebox")
    page.keyboard.press("u")
    page.wait_for_selector("h1:text('Rollout 2')")
    page.keyboard.press("?")
    assert "next rollout of the group" in text(page, "dialog")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.wait_for_selector("text=4 groups")


def test_a_tree_opens_node_by_node(open_page: Open):
    """Oracle: hand. Kills: a node that shows another's text, a fork drawn at the wrong place."""
    page = open_page("run/1/group/train/0/0")
    assert page.locator("svg .nodebox").count() == 7
    page.click("[data-node='rooms/train/0#0/0~1.0'] .node")
    page.wait_for_selector(".panel h2:has-text('rooms/train/0#0/0~1.0')")
    assert "n in the corner." in text(page, ".panel") and "node=rooms" in page.url
    assert page.locator(".panel .chip").all_inner_texts() == ["rollout 1: 0"]
    box = {name: page.locator(f"[data-node='rooms/train/0#0/{name}'] .node").bounding_box() for name in
           ("root", "0.0", "0.1", "0~1.0", "1.0")}  # fmt: skip
    per_token = box["0.0"]["width"] / len(TOOL)
    assert box["0~1.0"]["x"] == pytest.approx(box["0.0"]["x"] + 5 * per_token, abs=2)
    assert box["0.1"]["y"] == box["0.0"]["y"] == box["root"]["y"] < box["0~1.0"]["y"]
    page.focus("[data-node='rooms/train/0#0/1.0']")
    page.keyboard.press("Enter")
    page.wait_for_selector(".panel h2:has-text('rooms/train/0#0/1.0')")
    page.hover(".panel .segments .tok >> nth=1")
    assert "most likely" in text(page, ".alternatives") and "token 1" in text(page, ".info")


def test_a_deep_link_shows_the_same(open_page: Open):
    """Oracle: hand. Kills: a state that only the page knows."""
    page = open_page("run/1/rollout/train/0/0/1?colour=version&token=26")
    assert page.get_attribute(".choice button[data-name=version]", "aria-pressed") == "true"
    assert re.search(r"token 26 · id \d+ · sampled · advantage -0.5", text(page, ".info"))
    page.keyboard.press("ArrowRight")
    assert "token 27" in text(page, ".info") and "token=27" in page.url
    page.keyboard.press("1")
    assert "colour=advantage" in page.url
    assert page.locator(".segments .tok.c-d-5").count() == 5 + len("n in the corner.")


@pytest.mark.parametrize(("place", "wanted"), [("0/1/0", V01), ("0/1/1", HOSTILE)])
def test_case_v01_hostile_text_is_shown_copied_and_never_run(open_page: Open, place: str, wanted: str):
    """Oracle: the case. Kills: markup from text, a tag that vanishes, marks that are copied with the text."""
    page = open_page(f"run/1/rollout/train/{place}")
    last = page.locator(".segment").last
    content = last.locator(".text").evaluate(
        "(e) => [...e.querySelectorAll('.tok')].map((t) => t.textContent).join('')"
    )
    assert content == wanted
    assert (
        page.evaluate(
            "document.querySelectorAll('main script, main img, main b > i, main svg[onload]').length"
        )
        == 0
    )
    selected = last.evaluate(
        """(e) => { const s = getSelection(); s.removeAllRanges(); const r = document.createRange();
        r.selectNodeContents(e.querySelector('.text')); s.addRange(r); return s.toString(); }"""
    )
    if wanted is V01:
        assert selected.replace("thought, 28 tokens", "") == wanted
        assert "<script>alert(1)</script>" in last.inner_text()
    else:
        assert page.locator(".ctl").count() >= 10
        assert page.locator(".ctl").first.evaluate("(e) => getComputedStyle(e, '::before').content") == '"␛"'
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("c")
    page.wait_for_selector("#said:text('copied')", state="attached")
    assert page.evaluate("navigator.clipboard.readText()").endswith(wanted.replace("\x00", "\x00"))


def test_hostile_names_stay_names_on_every_page(open_page: Open):
    """Oracle: hand: the task's name, a reason and an extra are markup. Kills: a field that is not text."""
    page = open_page("run/1/overview")
    assert "<img src=x onerror=window.hurt=9> with grpo" in text(page)
    assert "<i>why</i>" in text(page)
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    page = open_page("run/1/rollout/train/0/1/0")
    page.click("text=Noted by graders")
    assert "window.hurt = 1" in text(page, "details pre") and "distance=nan" in text(page)


def test_nothing_can_be_put_into_the_page_as_markup(open_page: Open):
    """Oracle: the browser's own enforcement of the policy. Kills: a policy that is sent but says nothing."""
    page = open_page("run/1/overview")
    refused = page.evaluate(
        """() => { const tries = [() => (document.body.innerHTML += '<i>x</i>'),
        () => document.write('x'), () => (document.createElement('script').text = 'window.hurt = 5')];
        return tries.map((one) => { try { one(); return 'done'; } catch (e) { return e.name; } }); }"""
    )
    assert refused == ["TypeError"] * 3
    fetched = page.evaluate("fetch('http://127.0.0.1:9/x').then(() => 'sent', (e) => e.name)")
    assert fetched == "TypeError"
    assert any("Content Security Policy" in one for one in open_page.problems)
    open_page.problems.clear()


def test_turns_and_tools_fold(open_page: Open):
    """Oracle: hand. Kills: folds that lose text, or that no key reaches."""
    page = open_page("run/1/rollout/train/0/0/0")
    assert page.locator(".segment").count() == 4
    assert "tool call" in text(page, ".fold > summary")
    assert page.locator("details[open]").count() == 5
    page.keyboard.press("f")
    assert page.locator(".segments details[open]").count() == 0
    page.keyboard.press("f")
    assert page.locator(".segments details[open]").count() == 5


def test_a_difference_shows_where_two_rollouts_part(open_page: Open):
    """Oracle: hand."""
    page = open_page(PAGES["diff"])
    assert "The first 24 tokens are the same" in text(page)
    sides = [
        "".join(page.locator(f".diff .text:nth-child({part})").all_text_contents())
        for part in ("odd", "even")
    ]
    assert sides == [
        f"You are in a room. {TOOL}\nA door.\nI open it.",
        "You are in a room. I loon in the corner.",
    ]
    page = open_page("run/1/rollout/train/0/0/0")
    page.select_option("select[aria-label='Compare with']", "1/train/0/0/2")
    page.wait_for_selector("h1:text('Difference of two rollouts')")


def test_two_runs_stand_side_by_side(open_page: Open):
    """Oracle: hand. Kills: one run's figures under the other's name."""
    page = open_page("compare/1/0")
    assert page.locator("h3:text('run (1)')").count() == 3
    row = page.locator("tr:has(th:text-is('rollouts')) td").all_inner_texts()
    assert row[0] == "10" and int(row[1].replace(",", "")) > 60
    assert "method" in text(page, "section:has(h2:text('Settings that differ'))")


def test_it_is_live(browser: Any, toy_path: Path, tmp_path: Path):
    """Oracle: the file that grows. Kills: a page that must be loaded again."""
    path = shutil.copytree(toy_path, tmp_path / "live")
    (path / "lock").write_text(json.dumps({"pid": os.getppid(), "host": socket.gethostname()}))
    rows = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("".join(rows[:2]))
    with Viewer(open_runs([path])).running() as viewer:
        page = browser.new_context().new_page()
        page.goto(viewer.url)
        page.wait_for_selector(".badge.running")
        page.wait_for_selector("text=2 of 5 steps done")
        (path / "metrics.jsonl").write_text("".join(rows))
        page.wait_for_selector("text=5 of 5 steps done", timeout=20000)
        (path / "lock").unlink()
        page.wait_for_selector(".badge.finished", timeout=20000)
        page.context.close()


def test_a_server_that_is_gone_is_said(browser: Any, hostile_path: Path):
    """Oracle: hand. Kills: a page that shows old figures as if they were new."""
    with Viewer(open_runs([hostile_path])).running() as viewer:
        page = browser.new_context().new_page()
        page.goto(viewer.url)
        page.wait_for_selector("text=Success by step")
    page.evaluate("location.hash = '#/run/0/groups'")
    page.wait_for_selector("text=is `rollwright view` still running?")
    page.context.close()


FIRST = """() => {
  const y = document.querySelector('.scroller').getBoundingClientRect().top;
  const rows = [...document.querySelectorAll('.row')];
  const row = rows.find((r) => r.getBoundingClientRect().bottom > y + 2);
  return [row.dataset.place, row.children[0].textContent, row.children[2].textContent].map(Number);
}"""
WAITS = "[...document.querySelectorAll('.row')].some((r) => r.textContent.includes('…'))"
LAST = "Math.max(...[...document.querySelectorAll('.row')].map((r) => Number(r.dataset.place)))"


def test_a_long_list_scrolls_by_rows_and_by_the_bar(browser: Any, tmp_path: Path):
    """Oracle: the rows' own order. Kills: rows that no scroll reaches in a list higher than any element."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from view_million import make_run

    path = make_run(tmp_path / "many", 320_000)
    with Viewer(open_runs([path])).running() as viewer:
        page = browser.new_context(viewport={"width": 1000, "height": 700}).new_page()
        page.goto(f"{viewer.url}#/run/0/rollouts")
        page.wait_for_selector("text=320,000 rollouts")

        def first() -> list[int]:
            for _ in range(200):  # the policy forbids what Playwright's own wait would do in the page
                if not page.evaluate(WAITS):
                    break
                page.wait_for_timeout(50)
            top = page.evaluate(FIRST)
            assert top[1] == top[0] // 800 and top[2] == top[0] % 8, top
            return top

        assert first()[0] == 0
        page.hover(".scroller")
        page.mouse.wheel(0, 300)
        page.wait_for_timeout(400)
        assert first()[0] == 10
        page.evaluate("document.querySelector('.scroller').scrollTop = 4000000")
        page.wait_for_timeout(300)
        middle = first()[0]
        assert 140_000 < middle < 180_000
        page.mouse.wheel(0, 300)
        page.wait_for_timeout(400)
        assert first()[0] == pytest.approx(middle + 10, abs=1)
        page.keyboard.press("End")
        page.wait_for_timeout(300)
        assert page.evaluate(LAST) == 319_999
        assert first()[0] < 320_000 - 10
        page.keyboard.press("Home")
        page.wait_for_timeout(300)
        assert first()[0] == 0
        page.context.close()
