"""The whole command in processes of its own: results, report, search, errors, Ctrl-C."""

import asyncio
import re
import signal
import sys

import msgspec
import pytest
from scripted_server import scripted, words

CODE = "from baton.cli import main; main()"
TIMEOUT_S = 60


async def start(*arguments):
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CODE,
        "bench",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finish(process):
    async with asyncio.timeout(TIMEOUT_S):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def bench(*arguments):
    return await finish(await start(*arguments))


SMALL = ("--num-prompts", "20", "--random-input-len", "8", "--random-output-len", "3")


async def test_a_run_gives_vllms_names_and_a_page_that_needs_no_network(tmp_path):
    result, page = tmp_path / "r.json", tmp_path / "r.html"
    async with scripted(words(3, gap_s=0.01)) as server:
        code, out, err = await bench(
            *("--url", server.url, *SMALL, "--request-rate", "50", "--warmup-requests", "2"),
            *("--goodput", "ttft:500", "tpot:100", "--save-detailed"),
            *("--json", str(result), "--html", str(page)),
        )
    assert (code, err) == (0, "")
    assert "18 completed, 0 failed" in out and "all targets" in out
    text = result.read_text()
    assert "NaN" not in text and "Infinity" not in text
    found = msgspec.json.decode(text)
    assert found["completed"] == 18 and found["total_output_tokens"] == 54
    assert found["num_warmup"] == 2 and found["model_id"] == "m"
    assert found["request_goodput"] == pytest.approx(found["request_throughput"])
    assert 5 < found["median_ttft_ms"] < 200 and 5 < found["p99_tpot_ms"] < 200
    assert len(found["ttfts"]) == len(found["itls"]) == len(found["records"]) == 18
    assert found["attainment"]["num_counted"] == 18
    check_page(page.read_text(), num_figures=3)


def check_page(page, num_figures):
    assert page.count("<figure>") == num_figures
    assert "met TTFT ≤ 500 ms and TPOT ≤ 100 ms" in page
    assert "rule: failed missed" in page, "the denominator stands on the page"
    assert page.count("plotly.js v") == 1
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    plots = msgspec.json.decode(re.search(r'id="plots">(.*?)</script>', page, re.S).group(1))
    assert sorted(plots) == sorted(re.findall(r'class="plot" id="([^"]+)"', page))


async def test_a_search_finds_the_rate_at_which_a_slow_server_fails(tmp_path):
    lock = asyncio.Lock()

    async def one_at_a_time(connection):
        async with lock:  # 20 requests a second at most
            await words(1, gap_s=0.05)(connection)

    result, page = tmp_path / "r.json", tmp_path / "r.html"
    async with scripted(one_at_a_time) as server:
        code, _, err = await bench(
            *("--url", server.url, *SMALL, "--arrivals", "constant", "--goodput", "ttft:120"),
            *("--search", "--search-low", "5", "--search-high", "80", "--resolution", "20"),
            *("--json", str(result), "--html", str(page)),
        )
        prompts = {tuple(body["prompt"]) for _, body in server.requests[2:]}
    assert (code, err) == (0, "")
    search = msgspec.json.decode(result.read_bytes())["search"]
    assert 5 <= search["goodput_joint"]["rate"] <= 25
    assert search["goodput_joint"]["failing_rate"] <= 45
    assert len(prompts) >= 20 * len(search["probes"]), "no probe repeats the prompts of another"
    assert "Attainment by offered rate" in page.read_text()


async def test_failures_are_counted_by_reason_and_a_run_of_failures_is_exit_code_1():
    answered = 0

    async def script(connection):
        nonlocal answered
        answered += 1
        if answered <= 2:  # the questions before the run
            await words(2)(connection)
        else:
            await connection.answer(429, {"error": {"message": "full", "code": "busy"}})

    async with scripted(script) as server:
        code, out, _ = await bench("--url", server.url, *SMALL, "--goodput", "ttft:100")
    assert code == 1
    assert "failed: 20 x HTTP 429" in out and "0.0%" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--url", "http://127.0.0.1:1"), "no server at http://127.0.0.1:1/v1/models"),
        (("--goodput", "ttft:0"), "--goodput 'ttft:0'"),
        (("--goodput", "ttft:5", "--attainment", "1.5"), "attainment = 1.5"),
        (("--request-rate", "0"), "--request-rate 0"),
        (("--num-prompts", "0"), "--num-prompts 0"),
        (("--dataset", "/nowhere.jsonl"), "--dataset /nowhere.jsonl"),
        (("--failed", "perhaps"), "--failed 'perhaps'"),
        (("stray",), "unexpected argument 'stray'"),
    ],
)
async def test_what_cannot_work_is_one_line_and_exit_code_2(arguments, words):
    code, out, err = await bench(*arguments)
    assert code == 2 and out == ""
    assert err.startswith("baton: ") and err.count("\n") == 1 and words in err


async def test_ctrl_c_prints_what_was_measured(tmp_path):
    result = tmp_path / "r.json"
    async with scripted(words(2, gap_s=0.01)) as server:
        process = await start(
            *("--url", server.url, *SMALL, "--request-rate", "4", "--json", str(result))
        )
        async with asyncio.timeout(TIMEOUT_S):
            while len(server.requests) < 8:
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        code, out, err = await finish(process)
    assert code == 130 and err == ""
    assert "interrupted" in out and "completed" in out
    found = msgspec.json.decode(result.read_bytes())
    assert found["interrupted"] is True and 1 <= found["completed"] < 20
