"""ShareGPT's JSON: the first human turn is the prompt, the answer to it gives the output length."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from baton.errors import ConfigError
from baton.workload.loaders.rows import Format, Options, Tally
from baton.workload.loaders.text import read_text
from baton.workload.request import WorkloadRequest

HUMAN = {"human", "user"}
MODEL = {"gpt", "chatgpt", "assistant", "bing", "bard"}
NO_PAIR = "no human turn with an answer after it"
NO_TOKENS = "an empty question or answer"
Turn = TypeVar("Turn")


def estimate_tokens(text: str) -> int:
    """Four tokens for three words of English; for want of a tokenizer."""
    return -(-len(text.split()) * 4 // 3)


def first_pair(turns: Sequence[tuple[str, Turn]]) -> tuple[Turn, Turn] | None:
    """The first human turn and the first answer after it."""
    questions: list[Turn] = []
    for role, turn in turns:
        if role in HUMAN:
            questions.append(turn)
        elif role in MODEL and questions:
            return questions[0], turn
    return None


def read(path: Path, options: Options, tally: Tally) -> Iterator[WorkloadRequest]:
    """One request for each conversation that has a question and an answer."""
    count_tokens = options.count_tokens or estimate_tokens
    if options.count_tokens is None:
        tally.notes.append("lengths estimated as words * 4/3, without a tokenizer")
    for index, entry in enumerate(_parse(path)):
        place = f"{path}, entry {index}"
        pair = first_pair(_turns(entry, place))
        if pair is None:
            tally.leave_out(NO_PAIR)
            continue
        num_prompt_tokens, num_output_tokens = map(count_tokens, pair)
        if num_prompt_tokens < 1 or num_output_tokens < 1:
            tally.leave_out(NO_TOKENS)
            continue
        yield WorkloadRequest(
            arrival_us=0,
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=num_output_tokens,
            session_id=str(entry.get("id", "")),
            prompt=pair[0],
        )


def _parse(path: Path) -> list[Any]:
    text = read_text(path)
    if not text.strip():
        raise ConfigError(f"{path}: the file is empty; name a trace that holds requests")
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as problem:
        raise ConfigError(
            f"{path}, line {problem.lineno}: not JSON at column {problem.colno} ({problem.msg}); "
            "the file is cut off or this is another format"
        ) from None
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"{path}: not JSON that can be read ({problem})") from None
    if not isinstance(entries, list):
        raise ConfigError(
            f"{path}, line 1: a JSON {type(entries).__name__}, not a list of conversations; "
            "ShareGPT files start with '['"
        )
    return entries


def _turns(entry: object, place: str) -> list[tuple[str, str]]:
    if not isinstance(entry, dict) or not isinstance(entry.get("conversations"), list):
        raise ConfigError(
            f"{place}: no list 'conversations' in {str(entry)[:60]!r}; "
            "an entry is {'id': ..., 'conversations': [{'from': ..., 'value': ...}]}"
        )
    turns = []
    for number, turn in enumerate(entry["conversations"]):
        where = f"{place}, turn {number}"
        if not isinstance(turn, dict):
            raise ConfigError(f"{where}: {str(turn)[:60]!r} is not an object; correct the entry")
        for name in ("from", "value"):
            if not isinstance(turn.get(name), str):
                raise ConfigError(
                    f"{where}: {name} = {str(turn.get(name))[:60]!r} is not text; correct the entry"
                )
        turns.append((turn["from"], turn["value"]))
    return turns


FORMAT = Format(
    name="sharegpt",
    what="JSON list of {id, conversations: [{from, value}]}",
    recognise=lambda line: line.startswith("["),
    read=read,
    has_arrivals=lambda line: False,
)
