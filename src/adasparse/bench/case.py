"""Cases of a benchmark: their interface, and the loop over them."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from adasparse.bench.results import Progress, Result, Row, Settings


class Case(Protocol):
    """A case to measure."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def title(self) -> str:
        """Name in tables."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape ``(b, h, n, d)``: heads of the query, tokens or keys."""

    def quick(self) -> "Case":
        """Return a smaller case without a bar."""

    def obstacle(self, settings: Settings) -> str | None:
        """Return why this cannot run here, or None."""

    def rows(self, settings: Settings) -> Iterable[Row]:
        """Measure."""


def measure_cases(
    cases: Sequence[Case], settings: Settings, progress: Progress, skipped: Iterable[str] = ()
) -> Result:
    """Run the requested cases, and note those that cannot run here.

    Args:
        cases: All cases, in order.
        settings: Settings of the run, which name the requested cases; all if none.
        progress: Told each case before it is measured.
        skipped: Remarks on requested cases that are not among ``cases``.
    """
    wanted = [case for case in cases if not settings.cases or case.name in settings.cases]
    rows: list[Row] = []
    skipped = list(skipped)
    for done, case in enumerate(wanted):
        progress(f"{case.name}: {case.title}", done, len(wanted))
        if obstacle := case.obstacle(settings):
            skipped.append(obstacle)
        else:
            sized = case.quick() if settings.is_quick else case
            named = {"case": case.name, "title": case.title, "shape": list(sized.shape)}
            rows += [named | row for row in sized.rows(settings)]
    return settings.result(skipped=skipped, results=rows)
