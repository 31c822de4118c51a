"""`make demo-page`: a small deployment under load, and screenshots of its page at /dashboard.

    python -m baton.bench.demo_page [--model M] [--seconds 20] [--out-dir DIR]

Needs Chromium (Debian: `apt-get install --no-install-recommends chromium`); without it, the page
is served and its address is printed, and that is all.
"""

import argparse
import asyncio
import random
from pathlib import Path

import aiohttp

from baton.bench.browser import BROWSERS, Page, browsing, find_browser
from baton.config import BatonConfig, load_config
from baton.runtime.deployment import deploy
from baton.runtime.front import open_front

_STREAMS = 6


async def shoot(page: Page, url: str, folder: Path) -> list[Path]:
    """Pictures of the page, light and dark, narrow, and of the newest request's own page.

    Raises TimeoutError where nothing is shown.
    """
    await page.open(f"{url}/dashboard", width=1360, height=1500)
    await page.until("document.querySelectorAll('tr.req').length")
    shots = []
    for name, scheme, (width, height), keys in (
        ("light.png", "light", (1360, 1500), ("j", "j")),
        ("dark.png", "dark", (1360, 1500), ()),
        ("narrow.png", "light", (800, 1500), ()),
        ("request.png", "light", (1360, 1300), ("Enter",)),
        ("request-narrow-dark.png", "dark", (800, 1300), ()),
    ):
        await page.resize(width, height)
        await page.prefer(scheme)
        await page.press(*keys)
        if "Enter" in keys:
            await page.until("!document.getElementById('detail').hidden")
        await page.shoot(folder / name)
        shots.append(folder / name)
    return shots


async def _ask(session: aiohttp.ClientSession, dice: random.Random) -> None:
    """One request: most are new, some go on from a known prompt, some clients leave."""
    known = [7 + dice.randrange(3)] * 96
    prompt = known if dice.random() < 0.3 else []
    prompt = prompt + [dice.randrange(3, 250) for _ in range(dice.randrange(20, 200))]
    body = {"prompt": prompt, "max_tokens": dice.randrange(4, 60), "stream": True}
    leaves = dice.random() < 0.05
    async with session.post("/v1/completions", json={**body, "ignore_eos": True}) as answer:
        async for _ in answer.content:
            if leaves:
                answer.close()
                return


async def drive(url: str, seconds: float) -> int:
    """Load through a few connections for so long; returns how many requests were made."""
    loop, dice, num = asyncio.get_running_loop(), random.Random(5), 0
    until = loop.time() + seconds

    async def stream(session: aiohttp.ClientSession) -> None:
        nonlocal num
        while loop.time() < until:
            await _ask(session, dice)
            num += 1
            await asyncio.sleep(dice.random() * 0.1)

    async with aiohttp.ClientSession(url) as session:
        await asyncio.gather(*(stream(session) for _ in range(_STREAMS)))
    return num


async def demo(config: BatonConfig, seconds: float, folder: Path, browser: str | None) -> int:
    """Serve, load, look; returns how many screenshots were taken."""
    folder.mkdir(parents=True, exist_ok=True)
    async with (
        deploy(config, lambda *_: None) as deployment,
        open_front(config, deployment) as front,
    ):
        await deployment.wait_ready(config.cluster.start_timeout_s)
        print(f"page: {front.url}/dashboard")
        loading = asyncio.create_task(drive(front.url, seconds))
        await asyncio.sleep(min(seconds, max(3.0, seconds - 12.0)))
        shots = []
        if browser:
            async with browsing(browser) as page:
                shots = await shoot(page, front.url, folder)
            for path in shots:
                print(f"screenshot: {path}")
        print(f"{await loading} requests")
    return len(shots)


def main() -> int:
    """Run it; 1 where there is no browser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out-dir", type=Path, default=Path("demo-page"))
    args = parser.parse_args()
    settings = [
        f'model.name="{args.model}"',
        "gateway.port=0",
        "cluster.prefill=2",
        "cluster.decode=2",
        "cluster.pin_cores=false",
        "router.ttft_slo_ms=250",
        "router.tpot_slo_ms=60",
        "worker.kv_nbytes=8388608",
    ]
    config = load_config(None, settings)
    taken = asyncio.run(demo(config, args.seconds, args.out_dir, find_browser()))
    if not taken:
        print(f"no browser: none of {', '.join(BROWSERS)} is installed")
    return 0 if taken else 1


if __name__ == "__main__":
    raise SystemExit(main())
