"""The profile's file: what comes back equals what was written, and nothing else is taken."""

import json

import msgspec
import pytest

from baton.errors import ConfigError
from baton.policy.service_profile import StepOverhead, encode_profile
from baton.profile_file import load_profile, save_profile
from tests.policy.profiles import make_profile

PROFILE = make_profile()


def test_a_profile_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "deep" / "profile.json"
    save_profile(PROFILE, path)
    assert load_profile(path) == PROFILE
    assert [p.name for p in path.parent.iterdir()] == ["profile.json"]
    assert json.loads(path.read_text())["format"] == "baton.service_profile/1"


def refusal(tmp_path, data: bytes) -> str:
    path = tmp_path / "p.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as refused:
        load_profile(path)
    text = str(refused.value)
    assert str(path) in text and "baton profile" in text and "\n" not in text
    return text


def changed(**fields) -> bytes:
    tree = json.loads(encode_profile(PROFILE))
    for path, value in fields.items():
        node = tree
        *parents, last = path.split("__")
        for name in parents:
            node = node[name]
        node[last] = value
    return json.dumps(tree).encode()


def test_every_cut_of_a_file_is_refused(tmp_path):
    data = encode_profile(PROFILE)
    for end in range(0, len(data) - 2, 97):
        refusal(tmp_path, data[:end])


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "cut off"),
        (b"\xff\xfe", "cut off"),
        (b"[]", "cut off"),
        (b"{}", "format ''"),
        (changed(format="baton.service_profile/2"), "service_profile/2"),
        (changed(profile__steps__base_us="fast"), "base_us"),
        (changed(profile__steps__base_us=-1.0), "base_us is -1"),
        (changed(profile__steps__base_us=None), "base_us"),
        (changed(profile__steps__row_us=[1.0]), "another number of coefficients"),
        (changed(profile__steps__work_us=[]), "another number of coefficients"),
        (changed(profile__transfer__bytes_per_us=0.0), "bytes_per_us is 0"),
        (changed(profile__contention__prefill_beside_decode=0.5), "below 1"),
        (changed(profile__subject__shape__layout__num_layers=0), "num_layers"),
        (changed(extra=1), "extra"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, data, named):
    assert named in refusal(tmp_path, data)


def test_numbers_that_are_none_are_never_written_nor_read(tmp_path):
    nan = make_profile(overhead=StepOverhead(step_us=float("nan"), sequence_us=0.0))
    with pytest.raises(ConfigError, match=r"overhead\.step_us is nan"):
        save_profile(nan, tmp_path / "p.json")
    assert list(tmp_path.iterdir()) == []
    refusal(tmp_path, encode_profile(PROFILE).replace(b"27000.0", b"NaN"))
    refusal(tmp_path, encode_profile(PROFILE).replace(b"27000.0", b"1e999"))


def test_a_missing_file_and_an_unwritable_place_are_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_profile(tmp_path / "none.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        save_profile(PROFILE, tmp_path / "file" / "p.json")


def test_a_profile_is_plain_json():
    again = msgspec.json.decode(encode_profile(PROFILE))
    assert again["profile"]["subject"]["hardware"]["cpu_model"] == "CPU"
