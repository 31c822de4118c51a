"""Fairness between tenants: virtual token counters choose whose request is routed next.

Each tenant's counter grows with the prompt and output tokens that it was served, output weighing
more. The waiting tenant of the lowest counter is next, so a burst of one waits behind the single
request of another. A tenant that comes back is lifted to the lowest of those that have been
waiting: being idle saves up no credit.
"""

from collections.abc import Iterable

OUTPUT_WEIGHT = 2
"""A decode row holds its worker for a whole step; a prompt row shares one with hundreds."""
_MAX_TENANTS = 4096


class TenantCounters:
    """What each tenant was served, in weighted tokens."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._waiting: frozenset[str] = frozenset()
        self._floor = 0
        """The counter that was lowest when somebody was last chosen."""

    def served(self, tenant: str) -> int:
        """This tenant's counter."""
        return self._served.get(tenant, 0)

    def charge(self, tenant: str, *, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Service was given."""
        self._served[tenant] = self.served(tenant) + prompt_tokens + OUTPUT_WEIGHT * output_tokens

    def next_tenant(self, waiting: Iterable[str]) -> str:
        """Of the tenants that wait, in the order of their first requests, whose turn it is."""
        tenants = list(dict.fromkeys(waiting))
        stayed = [self.served(tenant) for tenant in tenants if tenant in self._waiting]
        lowest = min(stayed) if stayed else self._floor
        for tenant in tenants:
            if tenant not in self._waiting:
                self._served[tenant] = max(self.served(tenant), lowest)
        self._waiting = frozenset(tenants)
        chosen = min(tenants, key=self.served)
        self._floor = max(self._floor, self.served(chosen))
        if len(self._served) > _MAX_TENANTS:
            self._forget()
        return chosen

    def _forget(self) -> None:
        """Who is below the floor and does not wait would be lifted above what is forgotten."""
        floor, waiting = self._floor, self._waiting
        self._served = {t: n for t, n in self._served.items() if n > floor or t in waiting}
