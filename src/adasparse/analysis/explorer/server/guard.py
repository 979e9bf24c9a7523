"""Request validation: Host, token, Origin, content type and body size."""

import asyncio
import json
import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Seconds that a body may take to arrive.
BODY_SECONDS = 10.0


class Guard:
    """Middleware that refuses requests before anything else sees them.

    The name in ``Host`` must be one that is served, or else any web page could reach a server on
    this machine under a name of its own; pages of other sites may link here, but not ask for
    anything; bodies are JSON of limited size that arrive in limited time. With a token, a browser
    must open ``/?token=...`` first, and gets a cookie for all other requests. Answers get headers
    that let a browser do nothing but what the page needs.

    Args:
        app: The application behind.
        hosts: Names that are served, without ports; None is any.
        token: Secret to ask for; None asks for none.
        most_bytes: Size limit of a body in bytes.
        policy: The Content-Security-Policy.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] | None,
        token: str | None = None,
        most_bytes: int,
        policy: str,
    ) -> None:
        self.app = app
        self.token = token
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
        refusal = self._refusal(scope, headers)
        if refusal is None and self.token is not None and not _has_cookie(scope, self.token):
            if _has_token(scope, self.token):
                await _give_cookie(scope, send_guarded, self.token)
                return
            refusal = 401, "Open the address that adasparse explore printed, with its token."
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

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self.hosts is not None and _without_port(host) not in self.hosts:
            return 421, f"This server is {', '.join(sorted(self.hosts))}; got Host {host[:80]!r}."
        is_link = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        site = headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") and not (is_link and scope["path"] == "/"):
            return 403, f"Requests must come from the page of this server; got one {site[:80]!r}."
        if scope["method"] != "POST":
            return None
        origin = headers.get("origin")
        try:
            is_own = origin is None or urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return 400, f"Origin must be the address of a site; got {(origin or '')[:80]!r}."
        if not is_own:
            return 403, f"Requests must come from the page of this server; got {origin!r:.80}."
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


def _cookie_name(scope: Scope) -> str:
    """Return a name that differs between servers: ports of a machine share their cookies."""
    server = scope.get("server")
    return f"adasparse_{server[1] if server else 0}"


def _has_cookie(scope: Scope, token: str) -> bool:
    try:
        cookie = SimpleCookie(Headers(scope=scope).get("cookie", "")).get(_cookie_name(scope))
    except CookieError:
        return False
    return cookie is not None and _is_same(cookie.value, token)


def _has_token(scope: Scope, token: str) -> bool:
    query = parse_qs(scope["query_string"].decode("latin-1"))
    return scope["path"] == "/" and _is_same(query.get("token", [""])[0], token)


def _is_same(given: str, token: str) -> bool:
    """Compare in constant time."""
    return secrets.compare_digest(given.encode(), token.encode())


async def _give_cookie(scope: Scope, send: Send, token: str) -> None:
    """Lead to the page without the token in its address."""
    cookie = f"{_cookie_name(scope)}={token}; Path=/; HttpOnly; SameSite=Lax"
    headers = [
        (b"location", b"/"),
        (b"set-cookie", cookie.encode()),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


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
