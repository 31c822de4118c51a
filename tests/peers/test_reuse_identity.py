"""Whose rows a name stands for: by the content of everything that decides them, never by a name."""

import msgspec
import pytest

from baton.cache.pool import MemPool
from baton.core.ids import Role
from baton.core.layout import KVLayout, ModelIdentity
from baton.core.messages import Refused
from baton.core.request import Request, SamplingParams
from tests.nodes.joining import MODEL, hello, info, lone_router

LAYOUT = KVLayout(num_layers=1, num_kv_heads=1, head_dim=1, block_size=4)
ADAPTED = ModelIdentity(
    model="base+style", checkpoint_hash="c", tokenizer_hash="t", adapter_hash="first content"
)
TOKENS = tuple(range(64))


def request(**fields: str) -> Request:
    return Request(
        request_id="r", prompt_token_ids=TOKENS, sampling=SamplingParams(max_tokens=1), **fields
    )


def names(identity: ModelIdentity, layout: KVLayout = LAYOUT, **fields: str) -> set[bytes]:
    """What a worker of this identity would look for."""
    pool = MemPool(32, layout, identity, prefix_caching=True)
    return set(pool.hashes(request(**fields), TOKENS))


def test_adapter_that_is_missing_from_the_key():
    """A second adapter, or none, never receives the first one's rows (R56)."""
    base = msgspec.structs.replace(ADAPTED, adapter_hash="")
    other = msgspec.structs.replace(ADAPTED, adapter_hash="other content")
    first, without, second = (names(identity) for identity in (ADAPTED, base, other))
    assert len(first) == len(TOKENS) // LAYOUT.block_size
    assert not first & without and not first & second and not without & second


def test_adapter_reloaded_under_its_name():
    """A display name is no identity: new content misses, the same content is found again (R57)."""
    reloaded = msgspec.structs.replace(ADAPTED, adapter_hash="second content")
    assert reloaded.model == ADAPTED.model
    assert not names(ADAPTED) & names(reloaded)
    renamed = msgspec.structs.replace(ADAPTED, model="another name")
    assert names(ADAPTED) == names(renamed)


@pytest.mark.parametrize("block_size", [2, 8, 16])
def test_block_size_that_two_sides_do_not_share(block_size):
    """Blocks of another size never match, not even those that end at the same token (R54)."""
    other = msgspec.structs.replace(LAYOUT, block_size=block_size)
    assert not names(ADAPTED) & names(ADAPTED, other)


@pytest.mark.parametrize(
    "fields",
    [
        {"cache_salt": "a"},
        {"tenant_id": "a"},
        {"tenant_id": "a", "cache_salt": "a"},
        {"tenant_id": "aa"},
    ],
    ids=str,
)
def test_salt_or_tenant_that_an_event_omits(fields):
    """They are within the names, so no message about blocks can lose them (R55)."""
    assert not names(ADAPTED) & names(ADAPTED, **fields)


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_worker_with_another_adapter_under_the_same_name(role):
    """It is refused at its hello, by the name of what differs, and not when a request fails."""
    router = lone_router()
    hello(router, info("p", Role.PREFILL))
    identity = msgspec.structs.replace(MODEL.identity, adapter_hash="other content")
    changed = msgspec.structs.replace(MODEL, identity=identity)
    ((to, message),) = hello(router, info("w", role, model=changed))
    assert (to, type(message)) == ("w", Refused)
    assert "its model identity is" in message.reason
