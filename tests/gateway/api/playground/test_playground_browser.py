"""The playground in a browser, against a real mesh."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from outrider.mesh.bus import Bucket, Bus
from outrider.wire.tenants import BUCKET

from tests.gateway.stack import BEGINNING, Stack
from tests.gateway.tenants import TenantStore
from tests.latch import FEW

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed: pip install playwright")
Page, expect = playwright.Page, playwright.expect

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FOUND = next(filter(None, map(shutil.which, BROWSERS)), None)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(FOUND is None, reason=f"there is no browser: none of {', '.join(BROWSERS)} is installed"),
]
expect.set_options(timeout=30_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[playwright.Browser]:
    sandbox = [] if os.getuid() else ["--no-sandbox"]
    async with playwright.async_playwright() as driver:
        made = await driver.chromium.launch(executable_path=FOUND, args=["--disable-dev-shm-usage", *sandbox])
        yield made
        await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: playwright.Browser) -> AsyncIterator[Page]:
    """An empty tab; fails if the page violates its own policy, or a script fails."""
    context = await browser.new_context(viewport={"width": 1200, "height": 900})
    made, wrong = await context.new_page(), list[str]()
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("console", lambda told: wrong.append(told.text) if "Content Security Policy" in told.text else None)
    yield made
    await context.close()
    assert not wrong


async def ask(page: Page, url: str, **fields: object) -> None:
    """Opens the page, fills its fields and runs it."""
    await page.goto(url)
    await expect(page.locator("#model option")).to_have_count(1)
    for name, value in fields.items():
        await page.fill(f"#{name}", str(value))
    await page.click("#run")


async def endless(route: playwright.Route) -> None:
    """Passes a request on with ``ignore_eos``."""
    asked = json.loads(route.request.post_data or "{}")
    await route.continue_(post_data=json.dumps(asked | {"ignore_eos": True}))


async def throttle(page: Page) -> None:
    """Slows answers down, so that a long one runs while a test acts."""
    slow = {"offline": False, "latency": 0, "downloadThroughput": 60_000, "uploadThroughput": -1}
    tab = await page.context.new_cdp_session(page)
    await tab.send("Network.enable")
    await tab.send("Network.emulateNetworkConditions", slow)


async def until_guessed(page: Page) -> None:
    """Runs the page until a guess was accepted: drafters that lost time are paused for a while."""
    await expect(page.locator("#verdict")).to_contain_text("Identical")
    while not await page.locator("#with .guess").count():
        await page.click("#run")
        await expect(page.locator("#verdict")).to_contain_text("Identical")


async def gap(page: Page) -> float:
    """Pixels of the answer below its visible part."""
    told = await page.locator("#with pre").evaluate("it => it.scrollHeight - it.scrollTop - it.clientHeight")
    return float(told)


async def facts(page: Page, pane: str) -> str:
    return await page.inner_text(f"#{pane} .facts")


async def test_a_prompt_is_answered_twice_with_the_same_text_and_both_speeds_are_told(
    page: Page, guessing: Stack
) -> None:
    await ask(page, guessing.url, prompt=BEGINNING, max_tokens=80, seed=5)
    await until_guessed(page)
    await expect(page.locator("#verdict")).to_contain_text("Identical: the same 80 tokens")
    await expect(page.locator("#verdict")).to_contain_text("Seed 5.")
    texts = [await page.locator(f"#{pane} pre").text_content() for pane in ("with", "without")]
    assert texts[0] == texts[1]
    assert str(texts[0]).startswith(BEGINNING)
    verdict = await page.inner_text("#verdict")
    assert re.search(r"[\d.]+ times the speed, [\d.]+ tokens a step\.", verdict)
    rates = [float((await page.inner_text(f"#{pane} .rate")).replace(",", "")) for pane in ("with", "without")]
    assert min(rates) > 0
    assert "80 tokens in 80 steps" in await facts(page, "without")
    assert "80 tokens in 80 steps" not in await facts(page, "with")
    assert not await page.locator("#without .guess").count()
    for pane in ("with", "without"):
        assert re.search(r"first token after [\d,]+ ms;", await facts(page, pane))


async def test_no_speed_is_claimed_where_nothing_was_guessed(page: Page, shared: Stack) -> None:
    await ask(page, shared.url, prompt=BEGINNING, max_tokens=20, seed=5)
    await expect(page.locator("#verdict")).to_contain_text("Identical: the same 20 tokens")
    verdict = await page.inner_text("#verdict")
    assert "No guess was taken, so both are plain decoding: 1 token a step." in verdict
    assert "times the speed" not in verdict


async def test_a_chat_has_several_turns_behind_a_system_prompt(page: Page, guessing: Stack) -> None:
    sent: list[dict[str, Any]] = []
    page.on("request", lambda made: sent.append(json.loads(made.post_data)) if made.method == "POST" else None)
    await page.goto(guessing.url)
    await expect(page.locator("#model option")).to_have_count(1)
    await page.check("#as-chat")
    await expect(page.locator("#prompt")).to_be_hidden()
    await page.fill("#system", "Be brief.")
    for turn, said in enumerate(("Hello?", "And then?"), 1):
        await page.fill("#message", said)
        await page.fill("#max_tokens", "12")
        await page.click("#run")
        await expect(page.locator("#verdict")).to_contain_text("Identical: the same 12 tokens")
        await expect(page.locator("#turns li")).to_have_count(2 * turn)
        await expect(page.locator("#message")).to_have_value("")
    assert [request["messages"] for request in sent[::2]] == [request["messages"] for request in sent[1::2]]
    roles = [[message["role"] for message in request["messages"]] for request in sent[::2]]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"]]
    last = sent[-1]["messages"]
    assert [last[0]["content"], last[1]["content"], last[3]["content"]] == ["Be brief.", "Hello?", "And then?"]
    answer = await asyncio.to_thread(
        httpx.post, f"{guessing.url}/v1/chat/completions", json=sent[0] | {"stream": False}
    )
    assert last[2]["content"] == answer.json()["choices"][0]["message"]["content"]
    await page.click("#anew")
    await expect(page.locator("#turns li")).to_have_count(0)
    await page.check("#as-completion")
    await expect(page.locator("#prompt")).to_be_visible()
    await expect(page.locator("#anew")).to_be_hidden()


async def test_who_scrolls_up_stays_there_and_who_scrolls_down_follows(page: Page, guessing: Stack) -> None:
    await page.route("**/v1/completions", endless)
    await throttle(page)
    await ask(page, guessing.url, prompt=BEGINNING, max_tokens=4000)
    pre, tokens = page.locator("#with pre"), page.locator("#with .told")
    while await pre.evaluate("it => it.scrollHeight - it.clientHeight") < 99:
        await expect(tokens.nth(await tokens.count() + 9)).to_be_attached()
    assert await gap(page) <= 2
    await pre.hover()
    await page.mouse.wheel(0, -12)
    while await gap(page) < 99:
        await expect(tokens.nth(await tokens.count() + 9)).to_be_attached()
    await pre.evaluate("it => { it.scrollTop = it.scrollHeight }")
    await expect(tokens.nth(await tokens.count() + 99)).to_be_attached()
    assert await gap(page) <= 2
    await page.click("#stop")


async def test_tokens_have_the_colour_of_who_guessed_them_and_the_legend_counts_them(
    page: Page, guessing: Stack
) -> None:
    await ask(page, guessing.url, prompt=BEGINNING, max_tokens=80)
    await until_guessed(page)
    counts = [await page.locator(f"#with .told.by-{name}").count() for name in ("model", "suffix", "ngram")]
    assert sum(counts)
    legend = await page.inner_text("#with .legend")
    for name, count in zip(("model", "suffix", "ngram"), counts, strict=True):
        assert (f"{name} {count}" in legend) == (count > 0)
    colour = "element => getComputedStyle(element).backgroundColor"
    colours = [await page.locator(name).first.evaluate(colour) for name in ("#with .told.own", "#with .guess", "#run")]
    assert len(set(colours)) == 3


async def test_the_tree_of_each_step_shows_what_was_taken_and_what_was_not(page: Page, guessing: Stack) -> None:
    await ask(page, guessing.url, prompt=BEGINNING, max_tokens=80, temperature=1, seed=5)
    await expect(page.locator("#verdict")).to_contain_text("Identical")
    count = int(await page.get_attribute("#step", "max") or 0)
    await page.focus("#step")
    kept = lost = 0
    for place in range(count, 0, -1):
        await expect(page.locator("#told")).to_contain_text(f"Step {place} of {count}: ")
        taken = await page.locator("#tree .node.kept").count()
        told = await page.inner_text("#told")
        nodes = await page.locator("#tree .node").count()
        assert f": {nodes - 1 - ('added' in told)} guesses, {taken - 1 - ('added' in told)} taken" in told
        assert await page.locator("#with .now").count() == taken - 1
        assert await page.locator("#tree path").count() == nodes - 1
        kept, lost = kept + taken, lost + nodes - taken
        await page.keyboard.press("ArrowLeft")
    assert kept > count
    assert lost


async def test_a_click_on_a_token_shows_its_step(page: Page, guessing: Stack) -> None:
    await ask(page, guessing.url, prompt=BEGINNING, max_tokens=40)
    await expect(page.locator("#verdict")).to_contain_text("Identical")
    await page.locator("#with .told").nth(0).dispatch_event("click")
    await expect(page.locator("#told")).to_contain_text("Step 1 of")
    await page.click("#after")
    await expect(page.locator("#told")).to_contain_text("Step 2 of")


async def test_a_refusal_says_what_is_wrong_and_leads_to_the_field(page: Page, guessing: Stack) -> None:
    await ask(page, guessing.url, temperature="warm")
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text('temperature must be a number from 0 to 100, not "warm"')
    await expect(alert).to_contain_text("HTTP 400")
    await expect(page.locator("#temperature")).to_be_focused()
    await page.keyboard.press("Control+A")
    await page.keyboard.type("0")
    await page.keyboard.press("Enter")
    await expect(page.locator("#verdict")).to_contain_text("Identical")
    await expect(alert).to_be_hidden()
    await expect(page.locator("[aria-invalid]")).to_have_count(0)


async def test_stop_ends_a_stream_where_it_stands(page: Page, guessing: Stack) -> None:
    await page.route("**/v1/completions", endless)
    with guessing.latch.at(FEW):
        await ask(page, guessing.url, prompt=BEGINNING, max_tokens=4000)
        await expect(page.locator("#with .told").first).to_be_attached()
        await page.click("#stop")
        await expect(page.locator("#verdict")).to_have_text("Stopped.")
    await expect(page.locator("#stop")).to_be_disabled()
    await expect(page.locator("#run")).to_be_focused()
    assert "ended by" not in await facts(page, "with")


async def test_a_gateway_that_is_gone_is_told_of(page: Page, guessing: Stack) -> None:
    await ask(page, guessing.url, max_tokens=8)
    await expect(page.locator("#verdict")).to_contain_text("Identical")
    await page.context.set_offline(True)
    await page.click("#run")
    await expect(page.get_by_role("alert")).to_contain_text("The gateway cannot be reached.")


async def test_a_key_is_asked_for_used_and_kept_in_the_tab_alone(page: Page, shared: Stack, urls: list[str]) -> None:
    bus = Bus()
    await bus.connect(shared.broker.url, "test", wait_s=10)
    _, key = await TenantStore(Bucket(bus, BUCKET)).key()
    await bus.close()
    await page.goto(shared.url)
    await expect(page.locator("#model option")).to_have_count(1)
    await expect(page.locator("#key")).to_be_hidden()
    await page.goto(urls[0])
    await expect(page.get_by_role("alert")).to_contain_text("HTTP 401")
    await expect(page.locator("#key")).to_be_focused()
    await page.keyboard.type(key)
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("alert")).to_be_hidden()
    await page.click("#run")
    await expect(page.locator("#verdict")).to_contain_text("Identical")
    stored = "[Object.values(sessionStorage), localStorage.length, document.cookie]"
    assert await page.evaluate(stored) == [[key], 0, ""]
    await page.reload()
    await expect(page.locator("#key")).to_have_value(key)


async def test_it_fits_a_phone_and_is_dark_where_that_is_wanted(page: Page, guessing: Stack) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    await ask(page, guessing.url, prompt=BEGINNING, max_tokens=40)
    await expect(page.locator("#verdict")).to_contain_text("Identical")
    for name in ("#verdict", "#with .rate", "#with pre"):
        await expect(page.locator(name)).to_be_in_viewport()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(ground)
    await page.emulate_media(color_scheme="dark")
    assert await page.evaluate(ground) != light
