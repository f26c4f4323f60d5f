"""HTTP, and a request's times as its client sees them."""

import dataclasses
import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit


class Refused(Exception):
    """Another answer than 2xx."""


@dataclasses.dataclass
class Answer:
    """Times in seconds, from the request."""

    ttft: float = 0.0
    latency: float = 0.0
    gaps: list[float] = dataclasses.field(default_factory=list)  # between tokens
    tokens: list[int] = dataclasses.field(default_factory=list)
    last: dict[str, Any] = dataclasses.field(default_factory=dict)  # event


def ask(url: str, body: Any = None, timeout: float = 600) -> bytes:
    connection, response = _open(url, body, timeout)
    try:
        return response.read()
    finally:
        connection.close()


def stream(
    url: str,
    body: Any,
    tokens_of: Callable[[dict[str, Any]], list[int]],
    begin: float | None = None,
    timeout: float = 600,
) -> Answer:
    """tokens_of(event): the tokens that came with it. begin: of the request, if
    something was done for it before."""
    begin = time.monotonic() if begin is None else begin
    answer = Answer()
    before = begin
    connection, response = _open(url, body, timeout)
    try:
        for event in _events(response):
            answer.last = event
            tokens = tokens_of(event)
            if not tokens:
                continue
            now = time.monotonic()
            if answer.tokens:
                answer.gaps.append(now - before)
            else:
                answer.ttft = now - begin
            before = now
            answer.tokens += tokens
    finally:
        connection.close()
    answer.latency = before - begin
    return answer


def _open(
    url: str, body: Any, timeout: float
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=timeout)
    path = at.path + (f"?{at.query}" if at.query else "")
    try:
        if body is None:
            connection.request("GET", path)
        else:
            header = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), header)
        response = connection.getresponse()
        if response.status // 100 != 2:
            answer = response.read(500).decode(errors="replace")
            raise Refused(f"{url}: {response.status} {answer}")
        return connection, response
    except BaseException:
        connection.close()
        raise


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Of a stream of server-sent events."""
    for line in response:
        if line.startswith(b"error: "):
            raise Refused(line.decode(errors="replace"))
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise Refused(json.dumps(event["error"]))
        yield event
