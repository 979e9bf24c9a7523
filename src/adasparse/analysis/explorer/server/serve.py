"""The server of the live explorer."""

import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from adasparse.analysis.explorer.server.connections import MOST_CONNECTIONS, TimedConnection


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes one that is free.

    Raises:
        OSError: If the address is taken or not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(MOST_CONNECTIONS)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"Cannot listen on {host} port {port}: {reason}.") from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Return where a browser on this machine finds the page."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def new_server(app: FastAPI) -> uvicorn.Server:
    """Return a server that is not running yet."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            http=TimedConnection,
            h11_max_incomplete_event_size=16 * 1024,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=5,
            ws="none",
            server_header=False,
        )
    )


def serve(
    app: FastAPI,
    listener: socket.socket,
    *,
    token: str | None = None,
    open_browser: bool = False,
    announce: Callable[[str], object] = print,
) -> None:
    """Answer requests until interrupted.

    Args:
        app: Application from ``create_app``.
        listener: Socket from ``listen``.
        token: Token of the application, which becomes a part of the address; None without.
        open_browser: Whether to show the page.
        announce: Called with the address.
    """
    address = address_of(listener) + ("" if token is None else f"?token={token}")
    announce(address)
    if open_browser:
        # The socket listens already: a browser that is early waits.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    new_server(app).run(sockets=[listener])
