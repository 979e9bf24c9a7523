"""``adasparse explore``: a local web page on which the heads of a model are tried out live."""

from pathlib import Path
from typing import Annotated

import typer

from adasparse.cli.common import hush_transformers, user_errors

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def explore(
    run: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, help="Folder of a model and its tokenizer.", metavar="RUN"
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
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
        from adasparse.analysis.explorer.server.app import LOCAL_HOSTS, create_app
        from adasparse.analysis.explorer.server.live_model import LiveModel
        from adasparse.analysis.explorer.server.serve import listen, serve

        hush_transformers()
        with listen(host, port) as listener:
            typer.echo(f"Loading {run}", err=True)
            live = LiveModel.load(run)
            is_local = host in LOOPBACK
            if not is_local:
                typer.echo("Everyone who can reach this machine can use the model.", err=True)
            app = create_app(live, hosts=LOCAL_HOSTS if is_local else None, first_text=text)
            serve(app, listener, open_browser=open_browser, announce=typer.echo)
