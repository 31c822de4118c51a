"""What one worker owes: an amount for each request, with its sum at hand."""

from collections.abc import Callable, Iterator


class Account:
    """Amounts by request id; whoever depends on them is told of every change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._amounts: dict[str, int] = {}
        self._changed = changed
        self.total = 0

    def __len__(self) -> int:
        return len(self._amounts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __setitem__(self, request_id: str, amount: int) -> None:
        self.total += amount - self._amounts.get(request_id, 0)
        self._amounts[request_id] = amount
        self._changed()

    def pop(self, request_id: str, default: None = None) -> int | None:
        """Take a request off the account; the default if it was not on it."""
        amount = self._amounts.pop(request_id, default)
        if amount is not None:
            self.total -= amount
            self._changed()
        return amount
