"""Every trace format gives the requests that its file describes, whatever the file is called."""

import gzip
import json
import shutil
import stat
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.workload.load import FORMATS, load_trace
from baton.workload.request import Workload

MOONCAKE = """\
{"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 3000, "input_length": 512, "output_length": 6, "hash_ids": [0]}

{"timestamp": 6000, "input_length": 3, "output_length": 7, "hash_ids": [9]}
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
AZURE_2024 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01.017335+00:00,2399,6
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118.5,GPT-4,417,276,693,API log
"""
BURSTGPT_SESSIONS = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
0.5,7,1.5,ChatGPT,10,20,30,Conversation log
1.5,8,1.5,ChatGPT,11,21,32,Conversation log
"""
SPLITWISE = """\
request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size
0,2,0,0.25,1,100,10
1,1,0,0.30,1,100,10
2,2,0,0.50,1,200,20
"""
LENGTHS = (
    "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,918,992,0.08\n2,3,5,1\n"
)
TIMED = "request_id,arrival_s,prompt_tokens,output_tokens\n0,0.643540,4684,9\n1,1.741384,622,28\n"
TURNS = """\
conv,turn,role,tokens
0,0,human,34
0,1,gpt,259
0,2,human,36
1,0,gpt,5
1,1,human,6
2,0,gpt,5
2,1,human,6
2,2,gpt,7
3,0,human,0
3,1,gpt,7
"""
SHAREGPT = json.dumps(
    [
        {
            "id": "a",
            "conversations": [
                {"from": "system", "value": "be brief"},
                {"from": "human", "value": "one two three"},
                {"from": "gpt", "value": "four five six seven"},
                {"from": "human", "value": "more"},
            ],
        },
        {"id": "b", "conversations": [{"from": "gpt", "value": "hello"}]},
        {
            "id": "c",
            "conversations": [{"from": "human", "value": ""}, {"from": "gpt", "value": "x"}],
        },
    ],
    indent=1,
)
TRACES = {
    "mooncake": MOONCAKE,
    "azure": AZURE,
    "burstgpt": BURSTGPT,
    "splitwise": SPLITWISE,
    "lengths": LENGTHS,
    "turns": TURNS,
    "sharegpt": SHAREGPT,
}


def save(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def shape(workload: Workload) -> list[tuple[int, int, int]]:
    return [
        (one.arrival_us, one.num_prompt_tokens, one.num_output_tokens) for one in workload.requests
    ]


def test_every_format_has_a_trace_here():
    assert set(TRACES) == set(FORMATS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MOONCAKE, [(0, 600, 5), (0, 512, 6), (3_000_000, 3, 7)]),
        (AZURE, [(0, 374, 44), (4_314_579, 396, 109)]),
        (AZURE_2024, [(0, 2162, 5), (1_007_405, 2399, 6)]),
        (BURSTGPT, [(0, 472, 18), (113_500_000, 417, 276)]),
        (BURSTGPT_SESSIONS, [(0, 10, 20), (1_000_000, 11, 21)]),
        (SPLITWISE, [(0, 100, 10), (250_000, 200, 20)]),
        (LENGTHS, [(0, 74, 918), (0, 2, 3)]),
        (TIMED, [(0, 4684, 9), (1_097_844, 622, 28)]),
        (TURNS, [(0, 34, 259), (0, 6, 7)]),
        (SHAREGPT, [(0, 4, 6)]),
    ],
)
def test_a_format_is_recognised_by_content_and_read(text, expected, tmp_path):
    assert shape(load_trace(save(tmp_path, text))) == expected


@pytest.mark.parametrize("name", TRACES)
def test_the_named_format_reads_what_auto_reads(name, tmp_path):
    path = save(tmp_path, TRACES[name], "misleading.json")
    assert load_trace(path, name) == load_trace(path)
    assert f"({name}, " in load_trace(path).source


@pytest.mark.parametrize("name", TRACES)
def test_gzip_is_read_transparently_under_any_name(name, tmp_path):
    plain = load_trace(save(tmp_path, TRACES[name]))
    for file in ("trace.gz", "trace.csv"):
        path = tmp_path / file
        path.write_bytes(gzip.compress(TRACES[name].encode()))
        assert load_trace(path).requests == plain.requests


@pytest.mark.parametrize("name", TRACES)
def test_a_byte_order_mark_and_foreign_line_ends_change_nothing(name, tmp_path):
    plain = load_trace(save(tmp_path, TRACES[name]))
    path = tmp_path / "windows"
    path.write_bytes(b"\xef\xbb\xbf" + TRACES[name].replace("\n", "\r\n").encode())
    assert load_trace(path).requests == plain.requests


def test_hash_ids_and_sessions_are_kept(tmp_path):
    workload = load_trace(save(tmp_path, MOONCAKE))
    assert [one.hash_ids for one in workload.requests] == [(0, 1), (0,), (9,)]
    assert workload.tokens_per_hash == 512
    sessions = load_trace(save(tmp_path, BURSTGPT_SESSIONS)).requests
    assert [one.session_id for one in sessions] == ["7", "8"]
    assert load_trace(save(tmp_path, AZURE)).tokens_per_hash == 0


def test_what_is_left_out_is_counted(tmp_path):
    def notes(text: str) -> tuple[str, ...]:
        return load_trace(save(tmp_path, text)).notes

    failure = "left out 1 rows: Response tokens = 0, a failure of the traced service"
    assert notes(BURSTGPT) == (failure,)
    assert notes(SPLITWISE) == ("left out 1 rows: request_type = 1, not a generative request (2)",)
    pair = "left out 1 rows: no human turn with an answer after it"
    empty = "left out 1 rows: an empty question or answer"
    arrivals = "no arrival times: all requests arrive at 0"
    assert notes(TURNS) == (arrivals, empty, pair)
    estimated = "lengths estimated as words * 4/3, without a tokenizer"
    assert notes(SHAREGPT) == (estimated, arrivals, empty, pair)
    assert notes(TIMED) == notes(AZURE) == ()


def test_a_tokenizer_counts_the_texts_of_a_conversation(tmp_path):
    workload = load_trace(save(tmp_path, SHAREGPT), count_tokens=len)
    assert shape(workload) == [(0, 13, 19)]
    assert workload.requests[0].prompt == "one two three"
    assert not any("estimated" in note for note in workload.notes)


def test_a_limit_stops_reading_there(tmp_path):
    path = save(tmp_path, MOONCAKE + "this line is broken\n")
    workload = load_trace(path, limit=3)
    assert len(workload.requests) == 3
    assert workload.notes == ("limited to the first 3 requests of the file",)
    assert load_trace(save(tmp_path, AZURE), limit=9).notes == ()


def test_unsorted_requests_are_sorted_and_said_to_be(tmp_path):
    header, first, second = AZURE.splitlines()
    workload = load_trace(save(tmp_path, "\n".join([header, second, first])))
    assert shape(workload) == shape(load_trace(save(tmp_path, AZURE)))
    assert workload.notes == ("sorted by arrival: 1 requests came before their predecessor",)


def test_ticks_are_spread_deterministically_in_the_order_of_the_file(tmp_path):
    lines = [
        json.dumps({"timestamp": 3000 * tick, "input_length": 1 + index, "output_length": 1})
        for tick in range(40)
        for index in range(10)
    ]
    path = save(tmp_path, "\n".join(lines))
    spread = load_trace(path, tick_us=3_000_000)
    assert spread == load_trace(path, tick_us=3_000_000)
    assert [one.num_prompt_tokens for one in spread.requests] == [*range(1, 11)] * 40
    arrivals = [one.arrival_us for one in spread.requests]
    assert arrivals[0] == 0 and arrivals == sorted(arrivals)
    assert len(set(arrivals)) == 400
    start_us = min(arrivals[10:20]) - arrivals[0]
    assert 0 < start_us < 6_000_000
    assert max(b - a for a, b in pairwise(arrivals)) < 3_000_000


def test_the_source_names_the_content(tmp_path):
    first = load_trace(save(tmp_path, AZURE, "azure.2023.csv"))
    assert first.name == "azure"
    assert first.source.startswith(str(tmp_path / "azure.2023.csv"))
    second = load_trace(save(tmp_path, AZURE.replace("374", "375"), "azure.2023.csv"))
    assert first.source != second.source


def test_a_read_only_file_is_enough(tmp_path):
    path = save(tmp_path, AZURE)
    path.chmod(stat.S_IRUSR)
    assert len(load_trace(path).requests) == 2
    shutil.move(path, tmp_path / "moved")
    assert len(load_trace(tmp_path / "moved").requests) == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 10**12), st.integers(1, 10**6), st.integers(1, 10**6)),
        min_size=1,
        max_size=30,
    )
)
def test_what_is_written_is_read(tmp_path_factory, rows):
    lines = [
        json.dumps({"timestamp": at, "input_length": prompt, "output_length": output})
        for at, prompt, output in rows
    ]
    path = save(tmp_path_factory.mktemp("trace"), "\n".join(lines))
    start = min(at for at, _, _ in rows)
    expected = sorted(((at - start) * 1000, prompt, output) for at, prompt, output in rows)
    assert sorted(shape(load_trace(path))) == expected
