"""The live explorer as a web application: a page, and one model that answers it."""

import asyncio
import logging
from collections.abc import Collection
from typing import Annotated, Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from adasparse.analysis.explorer.page import content_policy, render_page
from adasparse.analysis.explorer.server.guard import Guard
from adasparse.analysis.explorer.server.interventions import (
    LEAST_ALPHA,
    MOST_ALPHA,
    HeadChanges,
    RequestError,
)
from adasparse.analysis.explorer.server.live_model import Limits, LiveModel

#: Names by which a server on this machine is reached; others may be tricks of a web page.
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})

#: The log that the server prints.
_LOG = logging.getLogger("uvicorn.error")

_Alpha = Annotated[float, Field(ge=LEAST_ALPHA, le=MOST_ALPHA, allow_inf_nan=False)]


class RunRequest(BaseModel):
    """The body of ``POST /api/run``: heads by number, in modules by name."""

    model_config = ConfigDict(extra="forbid")

    text: str
    target: str | None = None
    alpha: dict[str, dict[Annotated[int, Field(ge=0)], _Alpha]] = {}
    off: dict[str, list[Annotated[int, Field(ge=0)]]] = {}

    def changes(self) -> HeadChanges:
        """Return what is to be changed."""
        off = {name: frozenset(heads) for name, heads in self.off.items()}
        return HeadChanges(alpha=self.alpha, off=off)


class Queue:
    """Lets one request use the model at a time; others wait, but not for ever."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.turn = asyncio.Semaphore(1)
        self.waiting = 0

    async def run(self, live: LiveModel, request: RunRequest) -> dict[str, Any]:
        """Return the answer of the model.

        Raises:
            HTTPException: 503 if the turn does not come in time, 500 if the model fails.
            RequestError: If the request is beyond the limits or names what there is not.
        """
        busy = HTTPException(503, "The model is busy. Try again in a moment.")
        if self.waiting >= self.limits.waiting:
            raise busy
        self.waiting += 1
        try:
            await asyncio.wait_for(self.turn.acquire(), self.limits.wait_seconds)
        except asyncio.TimeoutError:
            raise busy from None
        finally:
            self.waiting -= 1
        try:
            # A client that goes away does not end the turn before the model has finished.
            return await to_thread.run_sync(
                lambda: live.run(request.text, target=request.target, changes=request.changes())
            )
        except RequestError:
            raise
        except Exception as error:  # whatever a model raises; the server stays
            name, reason = type(error).__name__, " ".join(str(error).split())
            _LOG.error("The model failed on a text: %s: %.300s", name, reason)
            raise HTTPException(500, f"The model failed on this text ({name}).") from error
        finally:
            self.turn.release()


def create_app(
    live: LiveModel,
    *,
    hosts: Collection[str] | None = LOCAL_HOSTS,
    token: str | None = None,
    first_text: str | None = None,
) -> FastAPI:
    """Return the application.

    Args:
        live: The model; no request changes it.
        hosts: Names in the ``Host`` header that are answered; None answers all.
        token: Secret that a browser must show once, in the address of the page; None asks for none.
        first_text: Sentence to run when the page opens; the example of the model if None.
    """
    app = FastAPI(title="adasparse explore", docs_url=None, redoc_url=None, openapi_url=None)
    queue = Queue(live.limits)
    first_text = live.example if first_text is None else first_text
    page = render_page({**live.payload(), "first_text": first_text}, mode="live")

    @app.get("/", response_class=HTMLResponse)
    async def index() -> str:
        return page

    @app.get("/api/model")
    async def describe() -> dict[str, Any]:
        return live.describe()

    @app.post("/api/run")
    async def run(request: RunRequest) -> dict[str, Any]:
        return await queue.run(live, request)

    _handle_errors(app)
    policy = f"{content_policy('live')}; frame-ancestors 'none'"
    app.add_middleware(
        Guard, hosts=hosts, token=token, most_bytes=live.limits.body_bytes, policy=policy
    )
    return app


def _handle_errors(app: FastAPI) -> None:
    """Answer every mistake with JSON that says what it was."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        headers = {"Retry-After": "2"} if error.status_code == 503 else None
        return JSONResponse({"error": error.detail}, error.status_code, headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": _first_mistake(error)}, 422)

    @app.exception_handler(RequestError)
    async def impossible(_: Request, error: RequestError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 422)


def _first_mistake(error: RequestValidationError) -> str:
    """Return where the first mistake is and what is accepted; what was given is not repeated."""
    found = error.errors()[0]
    place = ".".join(str(part)[:80] for part in found["loc"] if part != "body")
    return f"{place}: {found['msg']}." if place else f"{found['msg']}."
