"""The page at /dashboard in a real browser, beside a real deployment that answers requests."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from real_deployment import Served, serving

from baton.bench.browser import BROWSERS, Page, browsing, find_browser
from baton.bench.live_history import LIMIT_FEED_NBYTES, VirtualLoad
from baton.core.effects import Trace
from baton.core.messages import Traced
from baton.runtime.clock import now_us
from baton.telemetry.live.feed import NUM_SHOWN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        find_browser() is None,
        reason=f"none of {', '.join(BROWSERS)} is installed: apt-get install chromium",
    ),
]
LEAST_CONTRAST, LEAST_TEXT_CONTRAST = 3.0, 4.5
"""Of graphics and of text, by WCAG 2.1 AA."""
_IDS = "[...document.querySelectorAll('tr.req')].map(one => one.dataset.id)"
_CHOSEN = "document.querySelector('tr.req[aria-selected=true]')?.dataset.id ?? ''"
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_IS_DETAIL = "!document.getElementById('detail').hidden"
_COLOURS = """(() => {
  const shown = name => {
    const one = document.createElement("i");
    one.style.color = name;
    document.body.append(one);
    const found = getComputedStyle(one).color.match(/[0-9.]+/g).slice(0, 3).map(Number);
    one.remove();
    return found;
  };
  const of = names => Object.fromEntries(names.map(n => [n, shown(`var(--${n})`)]));
  return {phases: of(PHASES), states: of(STATES.filter(n => n !== "free")),
    text: of(["ink", "dim", "hot", "good", "link"]), behind: of(["bg", "card"])};
})()"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown() -> AsyncIterator[tuple[Served, Page, list[str]]]:
    targets = ("router.ttft_slo_ms=60000", "router.tpot_slo_ms=60000")
    async with serving("cluster.prefill=1", "cluster.decode=2", *targets) as served:
        ids = await asked(served, 8)
        browser = find_browser()
        assert browser is not None
        async with browsing(browser) as page:
            await page.open("http://{}:{}/dashboard".format(*served.address))
            await page.until(f"{_IDS}.length", lambda num: num >= len(ids))
            yield served, page, ids


async def asked(served: Served, num: int) -> list[str]:
    """Requests, half of them at once; one client leaves after its first token."""

    async def ask(number: int) -> str:
        body = {"prompt": [7 + number] * 60, "max_tokens": 5, "ignore_eos": True}
        answer = await served.client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"]).removeprefix("cmpl-")

    ids = list(await asyncio.gather(*(ask(number) for number in range(num // 2))))
    body = {"prompt": [5] * 30, "max_tokens": 200, "ignore_eos": True, "stream": True}
    async with served.client.stream("POST", "/v1/completions", json=body) as answer:
        async for _ in answer.aiter_lines():
            break
    return [*ids, *[await ask(number) for number in range(num // 2, num)]]


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def fresh(shown: tuple[Served, Page, list[str]]) -> AsyncIterator[None]:
    """Every test begins at the list, light, 1280 wide; no test makes the console say anything."""
    _, page, _ = shown
    await page.evaluate(
        "location.hash = ''; chosen = ''; paused = false; rows(feed); document.activeElement.blur()"
    )
    await page.resize(1280, 900)
    await page.prefer("light")
    await page.until(f"!({_IS_DETAIL})")
    yield
    assert page.problems == []


async def test_every_worker_and_request_has_its_row(shown):
    served, page, ids = shown
    cards = await page.evaluate(
        "[...document.querySelectorAll('#workers .card')].map(c => c.innerText)"
    )
    assert [card.split()[0] for card in cards] == ["decode-1", "decode-2", "prefill-0"]
    for card, worker in zip(cards, ("decode-1", "decode-2", "prefill-0"), strict=True):
        info = served.view(worker).info
        assert f"{info.role}, epoch {info.epoch}" in card and f"of {info.num_blocks}" in card
    found = await page.evaluate(_IDS)
    assert set(ids) <= set(found) and len(found) == len(ids) + 1
    texts = await page.evaluate("[...document.querySelectorAll('tr.req')].map(r => r.innerText)")
    finished = [text for text in texts if "cancelled" not in text]
    assert len(finished) == len(ids)
    assert all("disaggregated" in one and "irst token after" in one for one in finished)
    clocks = await page.evaluate("document.getElementById('clocks').innerText")
    assert f"of {len(ids)} judged requests" in clocks and "100.0 %" in clocks
    flows = await page.evaluate("document.getElementById('flows').innerText")
    moved = flows.count("prefill-0 →")
    assert moved == await page.evaluate("document.querySelectorAll('#flows svg path').length") > 0


async def test_an_empty_list_says_why(shown):
    _, page, _ = shown
    for is_live, said in (("true", "No request has ended yet"), ("false", "telemetry.live is")):
        await page.evaluate(f"rows({{...feed, requests: [], is_live: {is_live}}})")
        assert said in await page.evaluate("document.getElementById('rows').innerText")


async def test_waterfalls_are_aligned_and_whole(shown):
    """Bars begin where the one before ended, fill their track, and all tracks share one axis."""
    _, page, _ = shown
    tracks = await page.evaluate(
        "[...document.querySelectorAll('tr.req .fall')].map(f => {"
        "const t = f.getBoundingClientRect();"
        "return {x: t.left, w: t.width, bars: [...f.children].map(b => {"
        "const r = b.getBoundingClientRect(); return [r.left - t.left, r.width]})}})"
    )
    assert len({round(track["x"]) for track in tracks}) == 1
    for track in tracks:
        at = 0.0
        for left, width in track["bars"]:
            assert abs(left - at) < 2.5, track  # a phase of no length still has a pixel
            at = left + width
        assert abs(at - track["w"]) < 2.5, track


async def test_keys_choose_open_and_come_back(shown):
    _, page, _ = shown
    await page.press("p")  # nothing ends meanwhile, but the list must not move
    found = await page.evaluate(_IDS)
    assert await page.evaluate(_CHOSEN) == "", "nobody has chosen yet"
    await page.press("j")
    assert await page.evaluate(_CHOSEN) == found[0]
    await page.press("ArrowDown", "j", "ArrowUp")
    assert await page.evaluate(_CHOSEN) == found[1]
    await page.press("Enter")
    await page.until(_IS_DETAIL)
    assert await page.evaluate("location.hash") == f"#{found[1]}"
    await page.press("j")
    await page.until("location.hash", lambda text: text == f"#{found[2]}")
    await page.press("Escape")
    await page.until(f"!({_IS_DETAIL})")
    assert await page.evaluate(_CHOSEN) == found[2], "the list still has it chosen"
    await page.press("/")
    assert await page.evaluate("document.activeElement.id") == "find"
    await page.press(*"jk")
    assert await page.evaluate("document.getElementById('find').value") == "jk", "text, not keys"
    await page.evaluate(f"document.getElementById('find').value = '{found[0]}'")
    await page.press("Enter")
    await page.until("location.hash", lambda text: text == f"#{found[0]}")
    await page.press("Escape", "Escape", "p")  # out of the field, back to the list, go on
    await page.until(f"!({_IS_DETAIL})")
    assert await page.evaluate("document.getElementById('paused').hidden")


async def test_the_focused_row_stays_focused_while_the_list_is_drawn_anew(shown):
    served, page, _ = shown
    await page.press("j", "j")
    chosen = await page.evaluate(_CHOSEN)
    (new,) = (await asked(served, 2))[:1]
    await page.until(f"{_IDS}.includes('{new}')")
    assert await page.evaluate(_CHOSEN) == chosen
    assert await page.evaluate("document.activeElement.dataset.id") == chosen


async def test_the_page_of_a_request_by_its_id(shown):
    served, page, ids = shown
    await page.evaluate(f"location.hash = '{ids[0]}'")
    await page.until(_IS_DETAIL)
    await page.until("document.getElementById('detail').innerText.includes('published')")
    text = await page.evaluate("document.getElementById('detail').innerText")
    assert f"Request {ids[0]}" in text and "60 prompt" in text and "5 out" in text
    row = (await served.client.get("/dashboard/request", params={"id": ids[0]})).json()["row"]
    assert row["sentence"][1:] in text, "its first letter is a capital here"
    for phase, _, _ in row["spans"]:
        assert phase.replace("_", " ") in text
    await page.evaluate("location.hash = 'nobody'")
    await page.until("document.getElementById('detail').innerText.includes('No request nobody')")
    # The browser itself notes the answer 404; that is not the page's error.
    page.problems[:] = [one for one in page.problems if "404" not in one]


async def test_dark_and_light_are_both_legible(shown):
    _, page, _ = shown
    seen = {}
    for scheme in ("light", "dark"):
        await page.prefer(scheme)
        colours = seen[scheme] = await page.evaluate(_COLOURS)
        for behind in colours["behind"].values():
            for name, colour in {**colours["phases"], **colours["states"]}.items():
                assert contrast(colour, behind) >= LEAST_CONTRAST, (scheme, name)
            for name, colour in colours["text"].items():
                assert contrast(colour, behind) >= LEAST_TEXT_CONTRAST, (scheme, name)
    assert (
        luminance(seen["light"]["behind"]["bg"])
        > 0.8
        > 0.1
        > luminance(seen["dark"]["behind"]["bg"])
    )
    body = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    await page.press("t")
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != body
    await page.press("t")


@pytest.mark.parametrize("width", [1280, 800])
async def test_nothing_scrolls_sideways(shown, width):
    _, page, ids = shown
    await page.resize(width, 900)
    assert await page.evaluate(_OVERFLOW) == 0
    inner = "[...document.querySelectorAll('.scroll')].map(s => s.scrollWidth - s.clientWidth)"
    assert max(await page.evaluate(inner)) == 0, "nor does a table within the page"
    await page.evaluate(f"location.hash = '{ids[1]}'")
    await page.until("document.getElementById('detail').innerText.includes('published')")
    assert await page.evaluate(_OVERFLOW) == 0
    assert max(await page.evaluate(inner)) == 0


async def test_a_full_history_of_a_thousand_requests_a_second(shown):
    """Told to the gateway as if served; the last test here, since it pushes all others out."""
    served, page, _ = shown
    live, base_us = served.deployment.router.live, now_us() - 4_000_000
    for _, marks in VirtualLoad(1000, 0.4).until(2_000_000):
        for place, mark in marks:
            moved = msgspec.structs.replace(mark, at_us=base_us + mark.at_us)
            if place == "router":
                data = {"name": mark.name, "request_id": mark.request_id, "data": mark.data}
                live.record(Trace(**data, generation=mark.generation), moved.at_us)
            else:
                live.hear(place, 1, Traced(sent_us=now_us(), marks=(moved,)))
    newest = f"{1999:032x}"
    await page.until(f"{_IDS}.includes('{newest}')")
    assert len(live.history.last(1 << 20)) == 1000
    assert len((await served.client.get("/dashboard/feed")).content) <= LIMIT_FEED_NBYTES
    assert await page.evaluate(f"{_IDS}.length") == NUM_SHOWN
    paths = await page.evaluate("document.querySelectorAll('#flows svg path').length")
    assert paths == 16, "four sources, four destinations"
    for width in (1280, 800):
        await page.resize(width, 900)
        assert await page.evaluate(_OVERFLOW) == 0
    took_ms = await page.evaluate(
        "(() => {const begin = performance.now(); draw(feed);"
        "document.body.offsetHeight; return performance.now() - begin})()"
    )
    assert took_ms < 500, "drawn well within the second between two looks"
    await page.press("j", "Enter")
    await page.until(_IS_DETAIL)


def luminance(colour: list[float]) -> float:
    parts = [one / 255 for one in colour]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: list[float], other: list[float]) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
