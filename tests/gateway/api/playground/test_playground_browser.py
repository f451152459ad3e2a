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
axe = pytest.importorskip(
    "axe_playwright_python.async_playwright", reason="axe is not installed: pip install axe-playwright-python"
)
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
    """An empty tab whose seeds are the same each time; fails if the page violates its own policy, or a script fails."""
    context = await browser.new_context(viewport={"width": 1200, "height": 900})
    await context.add_init_script("Math.random = () => 0.5")
    made, wrong = await context.new_page(), list[str]()
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("console", lambda told: wrong.append(told.text) if "Content Security Policy" in told.text else None)
    yield made
    await context.close()
    assert not wrong


async def ask(page: Page, url: str, prompt: str = BEGINNING, mode: str = "completion", **fields: object) -> None:
    """Opens the page and sends a message, with settings."""
    await page.goto(url)
    await expect(page.locator("#model option")).to_have_count(1)
    await page.check(f"#as-{mode}")
    await fill(page, **fields)
    await send(page, prompt)


async def fill(page: Page, **fields: object) -> None:
    """Fills settings."""
    await page.click("#open-settings")
    for name, value in fields.items():
        await page.fill(f"#{name}", str(value))
    await page.click("#close-settings")


async def send(page: Page, text: str) -> None:
    """Sends a message."""
    await page.fill("#message", text)
    await page.click("#run")


async def compare(page: Page) -> str:
    """Asks for the newest answer once more, without speculation; what the page says of both."""
    await expect(page.locator("#run")).to_be_visible()
    await page.click(".assistant:last-child .compare")
    await expect(page.locator(".assistant:last-child .verdict")).to_contain_text("Seed")
    return await page.inner_text(".assistant:last-child .verdict")


async def until_guessed(page: Page) -> None:
    """Asks again until a guess was accepted: drafters that lost time are paused for a while."""
    await expect(page.locator("#run")).to_be_visible()
    while not await page.locator(".assistant .guess").count():
        await page.click(".assistant:last-child .again")
        await expect(page.locator("#run")).to_be_visible()


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


async def gap(page: Page) -> float:
    """Pixels of the conversation below its visible part."""
    told = await page.locator("#log").evaluate("it => it.scrollHeight - it.scrollTop - it.clientHeight")
    return float(told)


async def facts(page: Page) -> str:
    return await page.inner_text(".assistant:last-child .facts")


async def test_an_answer_is_compared_with_the_same_without_speculation(page: Page, guessing: Stack) -> None:
    await page.route("**/v1/completions", endless)
    await ask(page, guessing.url, max_tokens=80, seed=5)
    await until_guessed(page)
    verdict = await compare(page)
    assert "Identical: the same 80 tokens" in verdict
    assert "Seed 5." in verdict
    assert re.search(r"[\d.]+ times the speed \([\d.,]+ and [\d.,]+ tokens/s\), [\d.]+ tokens a step\.", verdict)
    assert str(await page.locator(".raw").text_content()).startswith(BEGINNING)
    told = await facts(page)
    assert re.search(
        r"[\d.]+ tokens/s · first token after [\d,]+ ms · 80 tokens in \d+ steps, [\d.]+ tokens a step", told
    )
    assert "80 tokens in 80 steps" not in told


async def test_no_speed_is_claimed_where_nothing_was_guessed(page: Page, shared: Stack) -> None:
    await ask(page, shared.url, max_tokens=20, seed=5)
    verdict = await compare(page)
    assert "Identical: the same 20 tokens" in verdict
    assert "No guess was taken, so both are plain decoding." in verdict
    assert "times the speed" not in verdict
    assert (await facts(page)).endswith("20 tokens in 20 steps · cut at the most tokens")
    await page.click("#anew")
    await fill(page, max_tokens=1)
    await send(page, BEGINNING)
    await expect(page.locator(".facts")).to_contain_text("1 token in 1 step · cut")


async def test_every_answer_is_compared_where_that_is_wanted(page: Page, guessing: Stack) -> None:
    await page.goto(guessing.url)
    await page.click("#open-settings")
    await page.check("#compare")
    await page.fill("#max_tokens", "12")
    await page.fill("#temperature", "0")
    await page.keyboard.press("Escape")
    await send(page, "Hello?")
    await expect(page.locator(".verdict")).to_contain_text("Identical: the same 12 tokens")


async def test_a_chat_has_several_turns_behind_a_system_prompt(page: Page, guessing: Stack) -> None:
    sent: list[dict[str, Any]] = []
    page.on("request", lambda made: sent.append(json.loads(made.post_data)) if made.method == "POST" else None)
    await ask(page, guessing.url, "Hello?", mode="chat", system="Be brief.", max_tokens=12, temperature=0)
    for turn, said in enumerate(("And then?", "Why?", "How so?"), 2):
        await expect(page.locator("#run")).to_be_visible()
        await page.keyboard.type(said)
        await page.keyboard.press("Enter")
        await expect(page.locator("#turns .assistant .facts")).to_have_count(turn)
        await expect(page.locator("#message")).to_have_value("")
    await expect(page.locator("#run")).to_be_visible()
    roles = [[message["role"] for message in request["messages"]] for request in sent]
    assert roles == [["system", "user", *["assistant", "user"] * turn] for turn in range(4)]
    last = sent[-1]["messages"]
    assert [last[0]["content"], last[1]["content"], last[3]["content"]] == ["Be brief.", "Hello?", "And then?"]
    answer = await asyncio.to_thread(
        httpx.post, f"{guessing.url}/v1/chat/completions", json=sent[0] | {"stream": False}
    )
    assert last[2]["content"] == answer.json()["choices"][0]["message"]["content"]
    await page.click("#anew")
    await expect(page.locator("#turns li")).to_have_count(0)
    await expect(page.locator("#hello")).to_be_visible()


async def test_a_reload_keeps_the_chat_and_its_settings(page: Page, guessing: Stack) -> None:
    await ask(page, guessing.url, "Hello?", mode="chat", max_tokens=12, seed=5)
    await expect(page.locator("#run")).to_be_visible()
    before = await page.inner_text("#turns")
    sent: list[dict[str, Any]] = []
    page.on("request", lambda made: sent.append(json.loads(made.post_data)) if made.method == "POST" else None)
    await page.reload()
    await expect(page.locator(".assistant .facts")).to_contain_text("12 tokens")
    assert (await page.inner_text("#turns")).split("\n")[0] == before.split("\n")[0]
    assert await page.input_value("#max_tokens") == "12"
    await send(page, "And then?")
    await expect(page.locator("#turns .assistant .facts")).to_have_count(2)
    assert [message["content"] for message in sent[0]["messages"]][::2] == ["Hello?", "And then?"]


STREAMED = """data: {"choices": [{"index": 0, "delta": {"content": %s}}], "outrider":
 {"tokens": [1], "texts": ["a"], "guessed_by": [""]}}\n\n""".replace("\n ", " ")
SAID = (
    "# Title\n\nSome **bold** `code` and <b>tags</b> <img src=x onerror=alert(1)>.\n\n"
    "| a | b |\n|-|-|\n| 1 | 2 |\n\n[link](javascript:alert(1)) [other](https://example.com)\n\n"
    "```python\ndef f():\n    return '<i>'\n```\n"
)


async def test_answers_are_rendered_and_their_html_is_text(page: Page, shared: Stack) -> None:
    async def answer(route: playwright.Route) -> None:
        body = STREAMED % json.dumps(SAID) + "data: [DONE]\n\n"
        await route.fulfill(body=body, content_type="text/event-stream")

    await page.route("**/v1/chat/completions", answer)
    await ask(page, shared.url, "Hello?", mode="chat")
    said = page.locator(".said")
    for tag, text in (("h1", "Title"), ("strong", "bold"), ("p > code", "code"), ("td >> nth=1", "2")):
        await expect(said.locator(tag)).to_have_text(text)
    assert await said.locator("pre").text_content() == "def f():\n    return '<i>'\n"
    await expect(said).to_contain_text("<b>tags</b> <img src=x onerror=alert(1)>.")
    assert await said.locator("img, b").count() == 0
    assert [await link.get_attribute("href") for link in await said.locator("a").all()] == [None, "https://example.com"]
    family = "element => getComputedStyle(element).fontFamily"
    assert "monospace" in await said.locator("pre").evaluate(family)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for copies, text in ((".copy-code", "def f():\n    return '<i>'\n"), (".copy", SAID)):
        await page.click(copies)
        await expect(page.locator("#verdict")).to_have_text("Copied.")
        assert await page.evaluate("navigator.clipboard.readText()") == text


async def test_an_error_in_mid_stream_keeps_the_text_and_the_question_may_be_asked_again(
    page: Page, guessing: Stack
) -> None:
    broken = (
        STREAMED % '"half an ans"' + 'data: {"error": {"message": "The model is gone.", "type": "server_error"}}\n\n'
    )

    async def answer(route: playwright.Route) -> None:
        await route.fulfill(body=broken, content_type="text/event-stream")

    await page.route("**/v1/chat/completions", answer, times=1)
    await ask(page, guessing.url, "Hello?", mode="chat", max_tokens=12)
    await expect(page.get_by_role("alert")).to_contain_text("The model is gone.")
    await expect(page.locator(".said")).to_have_text("half an ans")
    await expect(page.locator(".broken")).to_have_text("broke off")
    await page.click(".again")
    await expect(page.locator(".facts")).to_contain_text("12 tokens")
    await expect(page.locator("#turns li")).to_have_count(2)
    await expect(page.get_by_role("alert")).to_be_hidden()


async def test_who_scrolls_up_stays_there_and_who_scrolls_down_follows(page: Page, guessing: Stack) -> None:
    await page.set_viewport_size({"width": 1200, "height": 400})
    await page.route("**/v1/completions", endless)
    await throttle(page)
    await ask(page, guessing.url, max_tokens=4000)
    log, tokens = page.locator("#log"), page.locator(".told")
    while await log.evaluate("it => it.scrollHeight - it.clientHeight") < 99:
        await expect(tokens.nth(await tokens.count() + 9)).to_be_attached()
    assert await gap(page) <= 2
    await log.hover()
    await page.mouse.wheel(0, -12)
    while await gap(page) < 99:
        await expect(tokens.nth(await tokens.count() + 9)).to_be_attached()
    await log.evaluate("it => { it.scrollTop = it.scrollHeight }")
    await expect(tokens.nth(await tokens.count() + 99)).to_be_attached()
    assert await gap(page) <= 2
    await page.click("#stop")


async def test_tokens_have_the_colour_of_who_guessed_them_and_the_legend_counts_them(
    page: Page, guessing: Stack
) -> None:
    await page.route("**/v1/chat/completions", endless)
    await ask(page, guessing.url, mode="chat", max_tokens=80)
    await expect(page.locator("#run")).to_be_visible()
    await expect(page.locator("#inspector")).to_be_hidden()
    await page.click(".guesses")
    counts = [await page.locator(f"#tokens .told.by-{name}").count() for name in ("model", "suffix", "ngram")]
    own = await page.locator("#tokens .told.own").count()
    assert sum(counts) + own == 80
    legend = await page.inner_text("#inspector .legend")
    for name, count in zip(("model", "suffix", "ngram"), counts, strict=True):
        assert (f"{name} {count}" in legend) == (count > 0)
    assert f"the target {own}" in legend
    await page.click(".guesses")
    await expect(page.locator("#inspector")).to_be_hidden()
    await page.click("#anew")
    await page.check("#as-completion")
    await send(page, BEGINNING)
    await until_guessed(page)
    colour = "element => getComputedStyle(element).backgroundColor"
    colours = [await page.locator(name).first.evaluate(colour) for name in (".told.own", ".told.guess", "#run")]
    assert len(set(colours)) == 3


async def test_the_tree_of_each_step_shows_what_was_taken_and_what_was_not(page: Page, guessing: Stack) -> None:
    await ask(page, guessing.url, max_tokens=80, temperature=1, seed=5)
    await expect(page.locator("#run")).to_be_visible()
    await page.click(".guesses")
    count = int(await page.get_attribute("#step", "max") or 0)
    await page.focus("#step")
    kept = lost = 0
    for place in range(count, 0, -1):
        await expect(page.locator("#told")).to_contain_text(f"Step {place} of {count}: ")
        taken = await page.locator("#tree .node.kept").count()
        told = await page.inner_text("#told")
        nodes = await page.locator("#tree .node").count()
        assert f": {nodes - 1 - ('added' in told)} guesses, {taken - 1 - ('added' in told)} taken" in told
        assert await page.locator(".raw .now").count() == taken - 1
        assert await page.locator("#tree path").count() == nodes - 1
        kept, lost = kept + taken, lost + nodes - taken
        await page.keyboard.press("ArrowLeft")
    assert kept > count
    assert lost


async def test_a_click_on_a_token_shows_its_step(page: Page, guessing: Stack) -> None:
    await ask(page, guessing.url, max_tokens=40)
    await expect(page.locator("#run")).to_be_visible()
    await page.locator(".raw .told").nth(0).dispatch_event("click")
    await expect(page.locator("#told")).to_contain_text("Step 1 of")
    await page.click("#after")
    await expect(page.locator("#told")).to_contain_text("Step 2 of")


async def test_a_refusal_says_what_is_wrong_leads_to_the_field_and_keeps_the_message(
    page: Page, guessing: Stack
) -> None:
    await ask(page, guessing.url, temperature="warm", max_tokens=8)
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text('temperature must be a number from 0 to 100, not "warm"')
    await expect(alert).to_contain_text("HTTP 400")
    await expect(page.locator("#temperature")).to_be_focused()
    await page.keyboard.press("Control+A")
    await page.keyboard.type("0")
    await page.keyboard.press("Enter")
    await expect(page.locator("#message")).to_have_value(BEGINNING)
    await page.click("#run")
    await expect(page.locator(".facts")).to_contain_text("tokens/s")
    await expect(alert).to_be_hidden()
    await expect(page.locator("[aria-invalid]")).to_have_count(0)


async def test_stop_ends_a_stream_where_it_stands_and_keeps_the_text(page: Page, guessing: Stack) -> None:
    await page.route("**/v1/chat/completions", endless)
    with guessing.latch.at(FEW):
        await ask(page, guessing.url, "Hello?", mode="chat", max_tokens=4000)
        await expect(page.locator(".facts")).to_contain_text("tokens/s")
        await page.click("#stop")
        await expect(page.locator("#verdict")).to_have_text("Stopped.")
    await expect(page.locator("#stop")).to_be_hidden()
    await expect(page.locator("#message")).to_be_focused()
    await expect(page.locator(".broken")).to_have_text("stopped")
    assert await page.locator(".said").text_content()
    await page.unroute("**/v1/chat/completions")
    async with page.expect_request("**/v1/chat/completions") as sent:
        await send(page, "Go on.")
    asked = json.loads((await sent.value).post_data or "{}")
    assert [message["role"] for message in asked["messages"]] == ["user", "assistant", "user"]
    await page.keyboard.press("Escape")


async def test_a_gateway_that_is_gone_is_told_of_and_the_message_stays(page: Page, guessing: Stack) -> None:
    await ask(page, guessing.url, max_tokens=8)
    await expect(page.locator("#run")).to_be_visible()
    await page.context.set_offline(True)
    await send(page, "Hello?")
    await expect(page.get_by_role("alert")).to_contain_text("The gateway cannot be reached.")
    await expect(page.locator("#message")).to_have_value("Hello?")
    await expect(page.locator(".assistant")).to_have_count(1)


async def test_a_key_is_asked_for_used_and_kept_in_the_tab_alone(page: Page, shared: Stack, urls: list[str]) -> None:
    bus = Bus()
    await bus.connect(shared.broker.url, "test", wait_s=10)
    _, key = await TenantStore(Bucket(bus, BUCKET)).key()
    await bus.close()
    await page.goto(shared.url)
    await expect(page.locator("#model option")).to_have_count(1)
    await expect(page.locator("#settings")).to_be_hidden()
    await page.goto(urls[0])
    await expect(page.get_by_role("alert")).to_contain_text("HTTP 401")
    await expect(page.locator("#key")).to_be_focused()
    await page.keyboard.type(key)
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("alert")).to_be_hidden()
    stored = "[Object.values(sessionStorage), localStorage.length, document.cookie]"
    assert await page.evaluate(stored) == [[key], 0, ""]
    await page.keyboard.press("Escape")
    await send(page, "Hello?")
    await expect(page.locator(".facts")).to_contain_text("tokens/s")
    await page.reload()
    await expect(page.locator("#key")).to_have_value(key)


async def test_the_end_of_an_answer_stays_in_view_when_a_phone_s_keyboard_opens(page: Page, guessing: Stack) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await ask(page, guessing.url, max_tokens=100)
    for text in ("And then?", "And then?"):
        await expect(page.locator("#run")).to_be_visible()
        await send(page, text)
    await expect(page.locator("#run")).to_be_visible()
    await page.set_viewport_size({"width": 390, "height": 422})
    await expect(page.locator(".facts").last).to_be_in_viewport()


async def test_it_fits_a_phone_and_is_dark_where_that_is_wanted(page: Page, guessing: Stack) -> None:
    await page.set_viewport_size({"width": 360, "height": 740})
    await ask(page, guessing.url, max_tokens=40)
    await expect(page.locator("#run")).to_be_visible()
    await page.click(".guesses")
    for name in ("#message", "#run", "#tree"):
        await expect(page.locator(name)).to_be_in_viewport()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(ground)
    await page.emulate_media(color_scheme="dark")
    assert await page.evaluate(ground) != light


async def serious(page: Page) -> list[str]:
    """What axe-core finds on the page that keeps people from using it."""
    found = (await axe.Axe().run(page)).response["violations"]
    return [f"{each['id']}: {each['nodes']}" for each in found if each["impact"] in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(page: Page, guessing: Stack, scheme: str) -> None:
    await page.emulate_media(color_scheme=scheme)
    await page.goto(guessing.url)
    await expect(page.locator("#model option")).to_have_count(1)
    assert await serious(page) == []
    await page.click("#open-settings")
    assert await serious(page) == []
    await page.fill("#max_tokens", "40")
    await page.keyboard.press("Escape")
    await send(page, "Hello?")
    await expect(page.locator("#run")).to_be_visible()
    await compare(page)
    await page.click(".guesses")
    for width, height in ((1280, 900), (390, 844)):
        await page.set_viewport_size({"width": width, "height": height})
        assert await serious(page) == []
    await page.context.set_offline(True)
    await send(page, "And then?")
    await expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    assert await serious(page) == []
