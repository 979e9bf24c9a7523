"""Connections that never finish their requests, over real sockets."""

import contextlib
import http.client
import socket
import threading
import time

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from adasparse.analysis.explorer.server import connections
from adasparse.analysis.explorer.server.guard import Guard
from adasparse.analysis.explorer.server.serve import listen, new_server

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def application():
    app = FastAPI()

    @app.get("/")
    @app.post("/")
    async def index():
        return PlainTextResponse("here")

    @app.get("/large")
    async def large():
        return PlainTextResponse("x" * 8_000_000)

    app.add_middleware(Guard, hosts={"127.0.0.1"}, most_bytes=1000, policy="default-src 'none'")
    return app


@pytest.fixture
def port():
    listener = listen("127.0.0.1", 0)
    server = new_server(application())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(20)
    listener.close()
    assert not thread.is_alive()


def get(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def opened(stack, port, content):
    found = stack.enter_context(socket.socket())
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)  # a large answer does not fit
    found.settimeout(20)
    found.connect(("127.0.0.1", port))
    found.sendall(content)
    return found


def is_closed(connection, seconds):
    connection.settimeout(seconds)
    try:
        return connection.recv(100) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("number", [70, 100, 300])
@pytest.mark.parametrize(
    "content",
    [b"", HALF, POST + b"Content-Length: 10\r\n\r\n"],
    ids=["idle", "half a header", "no body"],
)
def test_nobody_is_locked_out(port, content, number):
    """70 connections without the end of their headers once kept everyone else away."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            opened(stack, port, content)
        for _ in range(3):
            assert get(port) == b"here"


def test_those_who_do_not_read_lock_nobody_out(port, monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            opened(stack, port, LARGE)
        for _ in range(3):
            assert get(port) == b"here"


def test_headers_must_end_in_time(port, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.5)
    with contextlib.ExitStack() as stack:
        idle, half = opened(stack, port, b""), opened(stack, port, HALF)
        trickle = opened(stack, port, HALF)
        start = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - start < 10:  # each byte once bought more time
                trickle.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() - start < 8
        assert is_closed(idle, 5) and is_closed(half, 5)
        assert get(port) == b"here"


def test_a_connection_is_kept_between_requests(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for _ in range(3):
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"here"
    assert connection.sock is not None
    connection.close()


def test_answers_must_be_read_in_time(port, monkeypatch):
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.5)
    with contextlib.ExitStack() as stack:
        slow = opened(stack, port, LARGE)
        time.sleep(2)
        received = 0
        with contextlib.suppress(ConnectionError):
            while part := slow.recv(1 << 20):
                received += len(part)
        assert received < 8_000_000


def test_large_headers_are_refused(port):
    with contextlib.ExitStack() as stack:
        large = opened(stack, port, HALF + b"x" * 100_000)
        with contextlib.suppress(ConnectionError):
            assert large.recv(100).startswith(b"HTTP/1.1 400")
        assert get(port) == b"here"
