"""A trace that cannot be read is refused with file, line, field, value and remedy."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ConfigError
from baton.workload.load import FORMATS, load_trace
from tests.workload.test_load import (
    AZURE,
    BURSTGPT,
    LENGTHS,
    MOONCAKE,
    SHAREGPT,
    SPLITWISE,
    TRACES,
    TURNS,
    save,
)


def refusal(path: Path, format: str = "auto", **options) -> str:
    with pytest.raises(ConfigError) as caught:
        load_trace(path, format, **options)
    assert str(path) in str(caught.value) or options
    return str(caught.value)


def loads_or_is_refused(path: Path, format: str) -> None:
    said = None
    try:
        workload = load_trace(path, format)
    except ConfigError as refused:
        said = str(refused)
    assert workload.requests if said is None else str(path) in said


@pytest.mark.parametrize(
    ("text", "old", "new", "parts"),
    [
        (MOONCAKE, '"input_length": 512', '"input_length": 0', ["line 2", "input_length = 0"]),
        (MOONCAKE, '"output_length": 7', '"output_length": -7', ["line 4", "-7", "negative"]),
        (MOONCAKE, '"output_length": 7', '"output_length": "x"', ["line 4", "'x'", "whole number"]),
        (MOONCAKE, '"output_length": 7', '"output_length": true', ["line 4", "True"]),
        (MOONCAKE, '"output_length": 7', '"output_length": null', ["line 4", "None"]),
        (MOONCAKE, '"output_length": 7', '"output": 7', ["line 4", "no field 'output_length'"]),
        (MOONCAKE, '"output_length": 7', '"output_length": 1e300', ["line 4", "1e+300"]),
        (MOONCAKE, '"timestamp": 6000', '"timestamp": NaN', ["line 4", "timestamp = nan"]),
        (MOONCAKE, '"timestamp": 6000', '"timestamp": 1e30', ["line 4", "plausible"]),
        (MOONCAKE, "[0, 1]", "[0, 1, 2]", ["line 1", "3 ids", "600", "has 2"]),
        (MOONCAKE, "[9]", '"9"', ["line 4", "hash_ids = '9'"]),
        (MOONCAKE, "[9]", "[-9]", ["line 4", "hash_ids = -9"]),
        (MOONCAKE, ', "hash_ids": [9]}', "", ["line 4", "not a JSON object"]),
        (AZURE, "396", "", ["line 3", "ContextTokens = ''"]),
        (AZURE, "396", "39.6", ["line 3", "ContextTokens = '39.6'"]),
        (AZURE, "396", "1_0", ["line 3", "ContextTokens = '1_0'"]),
        (AZURE, "396", "0", ["line 3", "ContextTokens = '0'", "remove the row"]),
        (AZURE, "396", "9" * 30, ["line 3", "ContextTokens", "1000000000 tokens"]),
        (AZURE, ",109", "", ["line 3", "2 columns where the header has 3"]),
        (AZURE, ",109", ",109,1", ["line 3", "4 columns"]),
        (AZURE, "109", '"109', ["line 3", "not CSV"]),
        (AZURE, "2023-11-16 18:15:50.9951690", "noon", ["line 3", "TIMESTAMP = 'noon'"]),
        (BURSTGPT, "118.5", "soon", ["line 4", "Timestamp = 'soon'"]),
        (BURSTGPT, "118.5", "inf", ["line 4", "Timestamp = 'inf'"]),
        (BURSTGPT, "417", "0", ["line 4", "Request tokens = '0'"]),
        (BURSTGPT, "1087,0", "1087,-1", ["line 3", "Response tokens = '-1'", "negative"]),
        (SPLITWISE, "0.50,1", "0.50,4", ["line 4", "batch_size = '4'"]),
        (SPLITWISE, "2,2,0", "2,x,0", ["line 4", "request_type = 'x'"]),
        (LENGTHS, "2,3,5", "2,0,5", ["line 3", "num_decode_tokens = '0'"]),
        (TURNS, "34", "-34", ["line 2", "tokens = '-34'"]),
        (SHAREGPT, '"conversations"', '"turns"', ["entry 0", "conversations"]),
        (SHAREGPT, '"hello"', "5", ["entry 1, turn 0", "value = '5'"]),
        (SHAREGPT, '"from": "gpt"', '"who": "gpt"', ["entry 0, turn 2", "from = 'None'"]),
        (SHAREGPT, '"id": "c",', '"id": "c"', ["line ", "column"]),
    ],
)
def test_a_broken_row_is_named(text, old, new, parts, tmp_path):
    assert old in text
    message = refusal(save(tmp_path, text.replace(old, new)))
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize("name", FORMATS)
def test_a_named_format_that_the_file_does_not_have(name, tmp_path):
    for other, text in TRACES.items():
        if other != name:
            refusal(save(tmp_path, text), name)


@pytest.mark.parametrize("name", ["auto", *FORMATS])
@pytest.mark.parametrize("content", [b"", b"\n \n\n", gzip.compress(b"", mtime=0)])
def test_an_empty_file(name, content, tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(content)
    assert "empty" in refusal(path, name)


@pytest.mark.parametrize(
    "text", ["TIMESTAMP,ContextTokens,GeneratedTokens\n", "conv,turn,role,tokens\n", "[]"]
)
def test_a_file_without_requests(text, tmp_path):
    assert "holds no requests" in refusal(save(tmp_path, text))


def test_a_file_whose_rows_are_all_left_out_says_why(tmp_path):
    text = "\n".join(BURSTGPT.splitlines()[i] for i in (0, 2))
    assert "left out 1 rows: Response tokens = 0" in refusal(save(tmp_path, text))


def test_a_missing_file_a_folder_and_a_device(tmp_path):
    assert "no such file" in refusal(tmp_path / "none.csv")
    assert "not a regular file" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads every file")
def test_a_file_that_may_not_be_read(tmp_path):
    path = save(tmp_path, AZURE)
    path.chmod(0)
    assert "not readable" in refusal(path)


@pytest.mark.parametrize("name", ["auto", *FORMATS])
def test_binary_garbage(name, tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    refusal(path, name)
    path.write_bytes(AZURE.encode("utf-16"))
    refusal(path, name)
    path.write_bytes(b"\x1f\x8b" + bytes(range(60)))
    assert "gzip" in refusal(path, name)


def test_text_that_is_not_utf8_is_named_by_line_and_byte(tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(AZURE.encode() + b"\xe9\n")
    message = refusal(path, "azure")
    assert "line 4" in message and "0xe9" in message and "UTF-8" in message


@pytest.mark.parametrize("name", TRACES)
def test_gzip_that_is_cut_off(name, tmp_path):
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(TRACES[name].encode())[:-12])
    assert "gzip" in refusal(path)


@pytest.mark.parametrize("name", TRACES)
@given(data=st.data())
def test_a_file_cut_off_anywhere_gives_a_workload_or_a_refusal(name, data, tmp_path_factory):
    text = TRACES[name]
    cut = data.draw(st.integers(0, len(text)))
    path = save(tmp_path_factory.mktemp("cut"), text[:cut])
    loads_or_is_refused(path, "auto")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_workload_or_a_refusal(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("bytes") / "trace"
    path.write_bytes(content)
    for name in ("auto", *FORMATS):
        loads_or_is_refused(path, name)


def test_headers_that_do_not_fit(tmp_path):
    assert "begins no known trace format" in refusal(save(tmp_path, "a;b;c\n1;2;3\n"))
    assert "begins no known" in refusal(save(tmp_path, '{"timestamp": 1}\n'))
    twice = "TIMESTAMP,ContextTokens,GeneratedTokens,ContextTokens\n"
    assert "twice" in refusal(save(tmp_path, twice))
    message = refusal(save(tmp_path, "TIMESTAMP,ContextTokens\n1,2\n"), "azure")
    assert "line 1" in message and "'GeneratedTokens'" in message


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"limit": 0}, "limit = 0"),
        ({"tick_us": 0}, "tick_us = 0"),
        ({"format": "csv"}, "format = 'csv'"),
    ],
)
def test_options_that_make_no_sense(options, part, tmp_path):
    with pytest.raises(ConfigError, match=part):
        load_trace(save(tmp_path, AZURE), **options)
