"""Connections of the live explorer: time limits, and a queue of those that wait."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds from a new or idle connection to the end of the headers of its next request.
HEADER_SECONDS = 10.0
#: Seconds from there to the end of the answer, the turn at the model included.
ANSWER_SECONDS = 120.0
#: Number of connections; one more takes the place of the oldest that is not being served.
MOST_CONNECTIONS = 128


class TimedConnection(H11Protocol):
    """A connection of limited duration.

    Headers and answers have a deadline, which no trickle of bytes extends. When there are too many
    connections, the oldest one is closed of those that are idle, have not sent their whole request,
    or do not read their answer: such connections alone cannot lock anyone out.
    """

    _deadline: asyncio.TimerHandle | None = None
    _was_answering = False

    def connection_made(self, transport: Any) -> None:
        """Start the clock, and make room."""
        super().connection_made(transport)
        self._opened = self.loop.time()
        self._set_deadline(HEADER_SECONDS)
        if len(self.connections) > MOST_CONNECTIONS:
            others = [x for x in self.connections if isinstance(x, TimedConnection)]
            idle = [x for x in others if x is not self and x._can_be_closed()]
            min(idle, key=lambda x: x._opened, default=self)._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._set_deadline(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._update_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request, once the answer is on its way."""
        super().on_response_complete()
        self._update_deadline()

    def resume_writing(self) -> None:
        """Write more of an answer, or wait for the next request."""
        super().resume_writing()
        self._update_deadline()

    def _is_answering(self) -> bool:
        has_request = self.cycle is not None and not self.cycle.response_complete
        return has_request or self.flow.write_paused

    def _can_be_closed(self) -> bool:
        return not self._is_answering() or self.cycle.more_body or self.flow.write_paused

    def _update_deadline(self) -> None:
        """Set another deadline if an answer has begun or ended since."""
        if self._is_answering() != self._was_answering:
            self._was_answering = not self._was_answering
            self._set_deadline(ANSWER_SECONDS if self._was_answering else HEADER_SECONDS)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        is_open = seconds is not None and not self.transport.is_closing()
        self._deadline = self.loop.call_later(seconds or 0, self._close) if is_open else None

    def _close(self) -> None:
        self.connections.discard(self)
        self.transport.abort()
