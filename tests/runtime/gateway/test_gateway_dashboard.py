"""The page at /dashboard: one small file from here alone, and its answers."""

import re

import httpx

PAGE_LIMIT_NBYTES = 200_000


def test_the_page_is_one_small_file_that_needs_nothing_from_elsewhere(http: httpx.Client):
    answer = http.get("/dashboard")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert len(answer.content) <= PAGE_LIMIT_NBYTES
    elsewhere = re.findall(r"(?:src|href)=\"?(?!#)[^\s>\"]+|https?://[^\s\"']+", answer.text)
    assert set(elsewhere) <= {"http://www.w3.org/2000/svg"}, "a namespace is no address"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert "innerHTML" not in answer.text, "what requests say is text, never markup"


def test_the_feed_is_json_and_is_not_kept_by_anybody(http: httpx.Client):
    answer = http.get("/dashboard/feed")
    assert answer.status_code == 200 and answer.json() == {"generation": 0}
    assert answer.headers["cache-control"] == "no-store"


def test_a_request_that_is_not_kept_is_named(http: httpx.Client):
    answer = http.get("/dashboard/request", params={"id": "abc"})
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert error["code"] == "request_not_kept" and "'abc'" in error["message"]


def test_the_page_takes_no_orders(http: httpx.Client):
    for path in ("/dashboard", "/dashboard/feed", "/dashboard/request", "/traces"):
        assert http.post(path, json={}).status_code == 405
