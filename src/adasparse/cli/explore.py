"""``adasparse explore``: a local web page on which the heads of a model are tried out live."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

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
        typer.echo("Loading libraries …", err=True)
        from adasparse.analysis.explorer.server.app import LOCAL_HOSTS, create_app
        from adasparse.analysis.explorer.server.live_model import LiveModel
        from adasparse.analysis.explorer.server.serve import listen, serve

        hush_transformers()
        with listen(host, port) as listener:
            typer.echo(f"Loading the model in {run} …", err=True)
            live = LiveModel.load(run)
            needs_token = host not in LOOPBACK and not allow_host
            own = {host} - set(_EVERY_ADDRESS)
            token = secrets.token_urlsafe(16) if needs_token else None
            app = create_app(
                live,
                hosts=None if needs_token else {*LOCAL_HOSTS, *own, *(allow_host or ())},
                token=token,
                first_text=text,
            )
            if host not in LOOPBACK:
                typer.echo(_who_may_use(allow_host), err=True)
            typer.echo("Ready; Ctrl-C ends it.", err=True)
            serve(app, listener, token=token, open_browser=open_browser, announce=typer.echo)


def _who_may_use(allowed: list[str] | None) -> str:
    """Return a line about access from other machines."""
    if allowed:
        return f"Everyone who can reach this machine as {', '.join(allowed)} can use the model."
    return (
        "Everyone who has the token of this address can use the model; on another machine, put the "
        "name of this one in place of 127.0.0.1."
    )
