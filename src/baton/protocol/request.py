"""A request's life as the router sees it (specification 0x00A), with early rejection."""

from enum import StrEnum

from baton.core.machine import Table


class RequestState(StrEnum):
    """Exactly one terminal state ends each request."""

    NEW = "NEW"
    FETCHING = "FETCHING"
    """A part of its prefix is on its way to the worker that will prefill it (0x09H, step 1)."""
    RESERVING = "RESERVING"
    PREFILLING = "PREFILLING"
    DECODING = "DECODING"
    CANCELLING = "CANCELLING"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    REJECTED = "REJECTED"


class RequestInput(StrEnum):
    """What moves a request on."""

    REJECT = "reject"
    FETCH = "fetch"
    FETCHED = "fetched"
    ROUTE = "route"
    GRANT = "grant"
    PUBLISH = "publish"
    RETRY = "retry"
    FINISH = "finish"
    CANCEL = "cancel"
    END = "end"
    FAIL = "fail"


_S, _I = RequestState, RequestInput

REQUEST = Table(
    "request",
    _S.NEW,
    {
        (_S.NEW, _I.REJECT): _S.REJECTED,
        (_S.NEW, _I.ROUTE): _S.RESERVING,
        (_S.NEW, _I.CANCEL): _S.CANCELLED,
        (_S.NEW, _I.FAIL): _S.FAILED,
        (_S.NEW, _I.FETCH): _S.FETCHING,
        (_S.FETCHING, _I.FETCHED): _S.NEW,
        (_S.FETCHING, _I.CANCEL): _S.CANCELLED,
        (_S.RESERVING, _I.GRANT): _S.PREFILLING,
        (_S.RESERVING, _I.RETRY): _S.NEW,
        (_S.RESERVING, _I.CANCEL): _S.CANCELLING,
        (_S.RESERVING, _I.FAIL): _S.FAILED,
        (_S.PREFILLING, _I.PUBLISH): _S.DECODING,
        (_S.PREFILLING, _I.RETRY): _S.NEW,
        (_S.PREFILLING, _I.CANCEL): _S.CANCELLING,
        (_S.PREFILLING, _I.FAIL): _S.FAILED,
        (_S.DECODING, _I.FINISH): _S.FINISHED,
        (_S.DECODING, _I.RETRY): _S.NEW,
        (_S.DECODING, _I.CANCEL): _S.CANCELLING,
        (_S.DECODING, _I.FAIL): _S.FAILED,
        (_S.CANCELLING, _I.END): _S.CANCELLED,
    },
)
