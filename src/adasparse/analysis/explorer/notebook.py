"""The explorer inside a notebook."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adasparse.analysis.explorer.page import render_page
from adasparse.analysis.explorer.payload import MeasuredRun, Payload, build_payload
from adasparse.analysis.measures.collect import measure_heads
from adasparse.analysis.recording.storage import Recording


@dataclass(frozen=True, kw_only=True)
class ShownExplorer:
    """The explorer as an object that notebooks display.

    Args:
        page: The whole page.
        height: Height of the frame in pixels.
    """

    page: str
    height: int

    def _repr_html_(self) -> str:
        """Return a frame in which the page can run its script and reach nothing else."""
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" sandbox="allow-scripts" '
            'title="Explorer of attention heads" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"ShownExplorer(height={self.height}, {len(self.page):,} characters of HTML)"


def show(
    what: Mapping[str, Any] | Recording | Sequence[Recording], *, height: int = 900
) -> ShownExplorer:
    """Return the explorer for a notebook to display: the last value of a cell.

    Args:
        what: A recording, several of the same sentences to compare, or a payload such as
            ``adasparse.analysis.explorer.payload`` describes.
        height: Height of the frame in pixels.
    """
    if not isinstance(height, int) or height < 1:
        raise ValueError(f"height must be a number of pixels, at least 1; got {height!r}.")
    payload = what if isinstance(what, Mapping) else _payload_of(what)
    return ShownExplorer(page=render_page(payload, mode="notebook"), height=height)


def _payload_of(what: Recording | Sequence[Recording]) -> Payload:
    recordings = [what] if isinstance(what, Recording) else list(what)
    wrong = [type(x).__name__ for x in recordings if not isinstance(x, Recording)]
    if wrong or not recordings:
        raise TypeError(
            "show() takes a payload, a recording or a sequence of recordings; "
            f"got {', '.join(wrong) or 'an empty sequence'}."
        )
    counts = {len(recording.sentences) for recording in recordings}
    if len(counts) > 1:
        raise ValueError(
            f"Recordings to compare must be of the same sentences; got {sorted(counts)} of them."
        )
    runs = [
        MeasuredRun(measures=measure_heads(recording), sentences=recording.sentences)
        for recording in recordings
    ]
    return build_payload(runs, title=" and ".join(run.measures.header.name for run in runs))
