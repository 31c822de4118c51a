"""Checkers outside the code: each knows the global truth and names the invariant it guards."""

from baton.sim.checks.blocks import BlocksAddUp, BlocksHaveOwners
from baton.sim.checks.copies import CopiesOutliveTransfers
from baton.sim.checks.credits import CreditsBoundBytes
from baton.sim.checks.history import HistoryIsTrue, TiersAddUp
from baton.sim.checks.holdings import HoldingsAreTrue
from baton.sim.checks.leaks import NothingHeld
from baton.sim.checks.publication import GenerationsOnlyRise, PublicationIsOnce, PublishedIsTrue
from baton.sim.checks.reads import DecodeReadsPublished, ReadsAreTrue, TenantsAreApart
from baton.sim.checks.rights import RightsAreLive
from baton.sim.checks.streams import StreamsAreExact
from baton.sim.checks.truths import Truths
from baton.sim.checks.writes import WritesAreOwned
from baton.sim.observer import Observer


def all_checkers() -> list[Observer]:
    """One of each, for one run."""
    truths = Truths()
    return [
        truths,
        PublishedIsTrue(truths),
        GenerationsOnlyRise(),
        PublicationIsOnce(),
        DecodeReadsPublished(truths),
        ReadsAreTrue(truths),
        TenantsAreApart(truths),
        WritesAreOwned(),
        CreditsBoundBytes(),
        BlocksAddUp(),
        BlocksHaveOwners(),
        HistoryIsTrue(truths),
        TiersAddUp(),
        CopiesOutliveTransfers(),
        RightsAreLive(),
        StreamsAreExact(truths),
        HoldingsAreTrue(),
        NothingHeld(),
    ]
