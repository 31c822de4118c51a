"""Every planted bug, by area."""

from tests.mutants import (
    accounts,
    batching,
    copies,
    dataplane,
    fences,
    given_up,
    handoff,
    holdings,
    legs,
    memory,
    remap,
    rights,
    routing,
    serving,
    tiers,
    vllm,
)
from tests.mutants.mutant import Mutant, StaleMutant

CATALOGUE: tuple[Mutant, ...] = (
    *accounts.MUTANTS,
    *batching.MUTANTS,
    *copies.MUTANTS,
    *dataplane.MUTANTS,
    *fences.MUTANTS,
    *given_up.MUTANTS,
    *handoff.MUTANTS,
    *holdings.MUTANTS,
    *legs.MUTANTS,
    *memory.MUTANTS,
    *remap.MUTANTS,
    *rights.MUTANTS,
    *routing.MUTANTS,
    *serving.MUTANTS,
    *tiers.MUTANTS,
    *vllm.MUTANTS,
)


def find(name: str) -> Mutant:
    """The mutant of this name."""
    for mutant in CATALOGUE:
        if mutant.name == name:
            return mutant
    raise StaleMutant(f"no mutant is called {name!r}; python -m tests.mutants lists them all")
