"""Decoding one token at a time gives the text that decoding everything gives."""

import json
from pathlib import Path

import pytest
import tokenizers
from gateway_fakes import SPECIALS, TEMPLATE, byte_level
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from baton.errors import ConfigError, RequestRejected
from baton.runtime.gateway import Tokenizer

BYTE_LEVEL = Tokenizer(byte_level(), chat_template=TEMPLATE)
REAL = sorted((Path.home() / ".cache/baton/models").glob("smollm2*"))


def metaspace() -> Tokenizer:
    """A SentencePiece-like vocabulary: word starts are marked, unknown bytes fall back."""
    words = ["<s>", "</s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += ["▁", "▁hello", "▁world", "h", "e", "l", "o", "w", "r", "d", "é"]
    vocab = {word: index for index, word in enumerate(words)}
    made = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>")
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(["<s>", "</s>"])
    return Tokenizer(made)


METASPACE = metaspace()


def streamed(tokenizer: Tokenizer, ids: list[int], context: list[int] | None = None) -> str:
    detokenizer = tokenizer.detokenizer(context or [])
    pieces = [detokenizer.push(token_id) for token_id in ids]
    return "".join(pieces) + detokenizer.flush()


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_byte_level_text_round_trips(text: str) -> None:
    ids = BYTE_LEVEL.encode(text)
    assert streamed(BYTE_LEVEL, ids) == text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, BYTE_LEVEL.vocab_size - 1), max_size=30))
def test_byte_level_any_ids_match_decode(ids: list[int]) -> None:
    assert streamed(BYTE_LEVEL, ids) == BYTE_LEVEL.decode(ids)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20))
def test_metaspace_text_matches_decode(text: str) -> None:
    ids = METASPACE.encode(text)
    assert streamed(METASPACE, ids) == METASPACE.decode(ids)


def test_no_piece_ever_shows_half_a_character() -> None:
    for tokenizer in (BYTE_LEVEL, METASPACE):
        detokenizer = tokenizer.detokenizer()
        pieces = [detokenizer.push(i) for i in tokenizer.encode("né 日本 👩‍🚀")]
        assert not any("\ufffd" in piece for piece in pieces)


def test_first_word_keeps_its_space_after_a_prompt() -> None:
    prompt = METASPACE.encode("hello")
    hello = METASPACE.encode("hello")
    assert streamed(METASPACE, hello, prompt) == " hello"
    assert streamed(METASPACE, hello) == "hello"


def test_unfinished_character_is_flushed_as_a_replacement() -> None:
    ids = BYTE_LEVEL.encode("é")[:1]
    detokenizer = BYTE_LEVEL.detokenizer()
    assert detokenizer.push(ids[0]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_control_tokens_are_silent_unless_asked_for() -> None:
    ids = [1, *BYTE_LEVEL.encode("hi"), 2]
    assert streamed(BYTE_LEVEL, ids) == "hi"
    detokenizer = BYTE_LEVEL.detokenizer(skip_special_tokens=False)
    assert "".join(map(detokenizer.push, ids)) == "<|im_start|>hi<|im_end|>"


def test_token_bytes() -> None:
    assert b"".join(map(BYTE_LEVEL.token_bytes, BYTE_LEVEL.encode("né日"))) == "né日".encode()
    assert METASPACE.token_bytes(3 + 0xE9) == b"\xe9"
    assert BYTE_LEVEL.token_bytes(10**6) == b""
    assert BYTE_LEVEL.is_special(1)
    assert not BYTE_LEVEL.is_special(40)


def test_chat_template_and_its_refusals() -> None:
    text = BYTE_LEVEL.apply_chat_template([{"role": "user", "content": "hi"}])
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    picky = Tokenizer(byte_level(), chat_template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(RequestRejected, match="roles must alternate"):
        picky.apply_chat_template([])
    with pytest.raises(RequestRejected, match="no chat template"):
        METASPACE.apply_chat_template([])


def test_template_dialect() -> None:
    template = (
        "{%- for m in messages %}\n    {%- if loop.index > 2 %}{% break %}{% endif %}\n"
        "{% generation %}{{ m.content | tojson }}{% endgeneration %}\n{%- endfor %}"
        "{{ bos_token }}{{ strftime_now('%Y') | length }}"
    )
    made = Tokenizer(byte_level(), chat_template=template, special_tokens={"bos_token": "<s>"})
    messages = [{"role": "user", "content": text} for text in ("<a>", "é", "c")]
    assert made.apply_chat_template(messages) == '"<a>""é"<s>4'


def test_templates_are_sandboxed() -> None:
    made = Tokenizer(byte_level(), chat_template="{{ messages.__class__.__mro__ }}")
    with pytest.raises(RequestRejected):
        made.apply_chat_template([])
    made = Tokenizer(byte_level(), chat_template="{{ messages.append(1) }}")
    with pytest.raises(RequestRejected):
        made.apply_chat_template([])


def test_load_reads_a_model_folder(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    settings_json = {"chat_template": "{{ eos_token }}", "eos_token": {"content": SPECIALS[0]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings_json))
    loaded = Tokenizer.load(tmp_path)
    assert loaded.apply_chat_template([]) == SPECIALS[0]
    (tmp_path / "chat_template.jinja").write_text("from file")
    assert Tokenizer.load(tmp_path).apply_chat_template([]) == "from file"
    settings_json["chat_template"] = [{"name": "default", "template": "named"}]  # type: ignore
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings_json))
    (tmp_path / "chat_template.jinja").unlink()
    assert Tokenizer.load(tmp_path).apply_chat_template([]) == "named"


def test_load_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)
    byte_level().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(ConfigError, match="does not compile"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json"):
        Tokenizer.load(tmp_path)


@pytest.mark.skipif(not REAL, reason="the default model is not on this machine")
def test_real_folder() -> None:
    tokenizer = Tokenizer.load(REAL[0])
    text = "Hello, wörld! 日本語 👩‍🚀\n\n  def f(x): return x"
    ids = tokenizer.encode(text)
    assert streamed(tokenizer, ids) == text
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert prompt.endswith("<|im_start|>assistant\n")
