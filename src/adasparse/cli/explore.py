"""``adasparse explore``: a local web page on which the heads of a model are tried out live."""

import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

from adasparse._command import say_loading
from adasparse.cli.common import hush_transformers, user_errors

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_EVERY_ADDRESS = ("0.0.0.0", "::", "")


def explore(
    run: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, help="Folder of a model and its tokenizer.", metavar="RUN"
        ),
    ],
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. Other machines need the token of the address that is "
            "printed, unless --allow-host is given."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name under which browsers may reach the page, without a token. Repeatable.",
            metavar="NAME",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="Sentence to begin with.", show_default="one of the training's dev set, if known"
        ),
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open the page.")
    ] = True,
) -> None:
    """Type sentences, see translation and heads, change the alpha of heads or switch them off."""
    with user_errors():
        allowed = [_checked_name(name) for name in allow_host or ()]
        say_loading()
        from adasparse.analysis.explorer.server.app import LOCAL_HOSTS, create_app
        from adasparse.analysis.explorer.server.live_model import LiveModel
        from adasparse.analysis.explorer.server.serve import listen, serve

        hush_transformers()
        with listen(host, port) as listener:
            typer.echo(f"Loading the model in {run} …", err=True)
            live = LiveModel.load(run)
            is_open = host not in LOOPBACK
            token = secrets.token_urlsafe(16) if is_open and not allowed else None
            own = [] if host in _EVERY_ADDRESS else [f"[{host}]" if ":" in host else host]
            hosts = {*LOCAL_HOSTS, *own, *allowed} if token is None else None
            app = create_app(live, hosts=hosts, token=token, first_text=text)
            if is_open:
                typer.echo(_who_may_use(allowed), err=True)
            typer.echo("Ready; Ctrl-C ends it.", err=True)
            serve(app, listener, token=token, open_browser=open_browser, announce=typer.echo)


def _checked_name(name: str) -> str:
    """Return a name that can stand in a ``Host`` header."""
    if not re.fullmatch(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]", name):
        raise ValueError(f"--allow-host takes a name without scheme and port; got {name!r}.")
    return name


def _who_may_use(allowed: list[str]) -> str:
    """Return a line about access from other machines."""
    if allowed:
        return f"Everyone who can reach this machine as {', '.join(allowed)} can use the model."
    return (
        "Everyone who has the token of this address can use the model; on another machine, put the "
        "name of this one in place of 127.0.0.1."
    )
