"""One flag of the whole suite: it writes every transcript anew."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="write what the stories in tests/transcripts show now"
    )
