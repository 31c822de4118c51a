"""What a server of several ranks holds is what any of them holds."""

from msgspec.structs import replace
from tests.integrations.vllm.servers import Servers

from baton.runtime.vllm.ticketed import leaks_of, most_held


def test_a_block_that_one_rank_keeps_is_a_leak_of_its_server():
    world = Servers(2, 1, 2)
    quiet = [side.legs.status() for side in world.p]
    assert leaks_of(most_held(quiet)) == ""
    world.hold(world.ticket())
    kept = world.p[1].legs.status()
    assert leaks_of(most_held([quiet[0], kept])) == "held_blocks 3, open_holds 1"
    assert leaks_of(most_held([kept, quiet[1]])) == "held_blocks 3, open_holds 1"
    waiting = replace(quiet[1], waiting_claims=2)
    assert leaks_of(most_held([quiet[0], waiting])) == "waiting_claims 2"
