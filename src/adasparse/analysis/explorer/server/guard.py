"""Request validation: Host, Origin, content type and body size."""

import asyncio
import json
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Seconds that a body may take to arrive.
BODY_SECONDS = 10.0


class Guard:
    """Middleware that refuses requests before anything else sees them.

    The name in ``Host`` must be one that is served, or else any web page could reach a server on
    this machine under a name of its own; a page of another origin may not post; bodies are JSON of
    limited size that arrive in limited time. Answers get headers that let a browser do nothing but
    what the page needs.

    Args:
        app: The application behind.
        hosts: Names that are served, without ports; None is any.
        most_bytes: Size limit of a body in bytes.
        policy: The Content-Security-Policy.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str] | None, most_bytes: int, policy: str
    ) -> None:
        self.app = app
        self.hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self.most_bytes = most_bytes
        self.headers = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no web sockets here

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope["method"], headers)
        body = b""
        if refusal is None and scope["method"] == "POST":
            try:
                body = await asyncio.wait_for(self._body(receive), BODY_SECONDS)
            except asyncio.TimeoutError:
                refusal = 408, f"A request must arrive within {BODY_SECONDS:g} seconds."
            else:
                if len(body) > self.most_bytes:
                    refusal = 413, f"A request may have {self.most_bytes} bytes; this has more."
        if refusal is not None:
            await _refuse(send_guarded, *refusal)
            return
        await self.app(scope, _replayed(body, receive), send_guarded)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self.hosts is not None and _without_port(host) not in self.hosts:
            return 421, f"This server is {', '.join(sorted(self.hosts))}; got Host {host[:80]!r}."
        if method != "POST":
            return None
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return 403, f"Requests must come from the page of this server; got {origin[:80]!r}."
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return 415, f"The body must be application/json; got {kind[:80]!r}."
        return None

    async def _body(self, receive: Receive) -> bytes:
        """Read a body up to one chunk more than is allowed."""
        body = b""
        while len(body) <= self.most_bytes:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        return body


def _without_port(host: str) -> str:
    """Return the name in a ``Host`` header; that of an IPv6 address keeps its brackets."""
    name, separator, port = host.lower().rpartition(":")
    return name if separator and port.isdigit() else host.lower()


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Hand out a body that was read already, then whatever comes."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
