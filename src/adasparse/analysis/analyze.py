"""Runs analyzed over a set of sentences: recorded, measured and drawn."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from adasparse.analysis.draw import AlphaHistory, save_figure
from adasparse.analysis.examples import Choice, Facts, choose, facts_of
from adasparse.analysis.files import write_atomically
from adasparse.analysis.gallery import Exhibit, GalleryFigure, draw_gallery
from adasparse.analysis.marks import asking_words, count_tokens, guess_language
from adasparse.analysis.meter import Measures, Meter
from adasparse.analysis.payload import MeasuredRun, Payload, build_payload, run_payload
from adasparse.analysis.record import Recorder
from adasparse.analysis.recording import RecordedSentence
from adasparse.analysis.report import ReportFigure, write_report
from adasparse.analysis.runs import Run

#: Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """What there is to know about some runs.

    Args:
        measures: Of each run.
        sentences: Some sentences, recorded from each run, the most interesting first.
        figures: All figures that the runs allow.
        skipped: Why others are missing, by name.
        languages: Of source and target, as far as they are known.
        title: What it is called.
    """

    measures: tuple[Measures, ...]
    sentences: tuple[tuple[RecordedSentence, ...], ...]
    figures: tuple[GalleryFigure, ...]
    skipped: Mapping[str, str]
    languages: Mapping[str, str | None]
    title: str

    def payload(self, *, max_bytes: int = 3_000_000) -> Payload:
        """Return the data of the explorer."""
        runs = [
            MeasuredRun(measures=measures, sentences=sentences)
            for measures, sentences in zip(self.measures, self.sentences, strict=True)
        ]
        return build_payload(runs, title=self.title, max_bytes=max_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Return all measures of all heads, as they stand in ``measures.json``."""
        first = self.measures[0]
        return {
            "version": 1,
            "adasparse": version("adasparse"),
            "title": self.title,
            "sentences": first.num_sentences,
            "languages": dict(self.languages),
            "bootstrap": {"resamples": first.resamples, "seed": first.seed, "level": 0.95},
            "figures": [figure.name for figure in self.figures],
            "skipped": dict(self.skipped),
            "runs": [_with_extremes(measures) for measures in self.measures],
        }

    def write(self, out: str | Path) -> list[Path]:
        """Write ``index.html``, ``measures.json`` and ``figures/``; return all paths."""
        out = Path(out)
        paths = [out / "measures.json"]
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=1)
        write_atomically(paths[0], text + "\n")
        for figure in self.figures:
            paths += save_figure(figure.figure, out / "figures" / figure.name)
        figures = [
            ReportFigure(
                title=figure.title,
                caption=figure.caption,
                image=(out / "figures" / f"{figure.name}.svg").read_bytes(),
                links={x.upper(): f"figures/{figure.name}.{x}" for x in ("csv", "svg", "png")},
            )
            for figure in self.figures
        ]
        return [write_report(self.payload(), out / "index.html", figures=figures), *paths]


def _with_extremes(measures: Measures) -> dict[str, Any]:
    """Return what there is about a run, and in which sentences each head is least and most sparse.

    Sentences are counted from 0.
    """
    found = run_payload(measures)
    for group in found["groups"]:
        group["extremes"] = [
            [
                dict(zip(("least", "most"), measures.extremes(group["kind"], i, j), strict=True))
                for j in range(len(heads))
            ]
            for i, heads in enumerate(measures.header.alpha[group["kind"]])
        ]
    return found


def analyze(
    runs: Sequence[Run],
    source: Sequence[str],
    target: Sequence[str] | None = None,
    *,
    title: str = "What heads do",
    languages: Mapping[str, str | None] | None = None,
    resamples: int = 1000,
    seed: int = 0,
    examples: int = 24,
    progress: Progress | None = None,
) -> Analysis:
    """Record, measure and draw the heads of some runs.

    Args:
        runs: With different names.
        source: Sentences that every run reads.
        target: Their translations, which translation models are made to write.
        title: What the analysis is called.
        languages: Of ``"source"`` and ``"target"``, for interrogative words; guessed if None.
        resamples: How often sentences are drawn again for confidence intervals.
        seed: Of that.
        examples: How many sentences to keep for the explorer, beside those of the figures.
        progress: Is told of every sentence.
    """
    _check(runs, source, target)
    if languages is None:
        languages = {
            "source": guess_language(source),
            "target": guess_language(target or ()),
        }
    interrogatives = asking_words(languages)
    recorders = [Recorder(run.model, run.tokenizer, name=run.name) for run in runs]
    facts: list[Facts] = []
    measured = []
    for recorder in recorders:
        meter = Meter(
            recorder.header,
            counts=_counts(recorder, source, target),
            interrogatives=interrogatives,
        )
        own = target if recorder.is_translation else None
        for number, sentence in enumerate(recorder.sentences(source, own), start=1):
            meter.add(sentence)
            if len(facts) < number:
                facts.append(facts_of(sentence.source, interrogatives.get("source", frozenset())))
            _tell(progress, f"measuring {recorder.header.name}", number, len(source))
        measured.append(meter.result(resamples=resamples, seed=seed))
    choice = choose(facts, measured, more=examples)
    recorded = [_record_again(recorder, choice, source, target) for recorder in recorders]
    exhibits = [
        Exhibit(
            measures=measures,
            history=_history(run, measures),
            sentences=sentences,
            interrogatives=interrogatives.get("source", frozenset()),
        )
        for run, measures, sentences in zip(runs, measured, recorded, strict=True)
    ]
    _tell(progress, "drawing", 0, 1)
    figures, skipped = draw_gallery(exhibits, choice)
    _tell(progress, "drawing", 1, 1)
    return Analysis(
        measures=tuple(measured),
        sentences=tuple(tuple(sentences.values()) for sentences in recorded),
        figures=tuple(figures),
        skipped=skipped,
        languages=languages,
        title=title,
    )


def _check(runs: Sequence[Run], source: Sequence[str], target: Sequence[str] | None) -> None:
    names = [run.name for run in runs]
    if not runs or len(set(names)) < len(names):
        raise ValueError(f"analyze takes at least one run, of different names; got {names}.")
    if not source:
        raise ValueError("analyze takes at least one sentence; got none.")
    if target is not None and len(target) != len(source):
        raise ValueError(
            f"There must be a target for each source; got {len(source)} and {len(target)}."
        )
    empty = next((i for i, text in enumerate(source) if not text.strip()), None)
    if empty is not None:
        raise ValueError(f"Sentences must not be empty; sentence {empty} is.")


def _tell(progress: Progress | None, what: str, done: int, total: int) -> None:
    if progress is not None:
        progress(what, done, total)


def _counts(
    recorder: Recorder, source: Sequence[str], target: Sequence[str] | None
) -> dict[str, Mapping[int, int]]:
    """Count the tokens of each side."""
    counts: dict[str, Mapping[int, int]] = {
        "source": count_tokens(recorder.encode(text) for text in source)
    }
    if recorder.is_translation and target is not None:
        counts["target"] = count_tokens(recorder.encode(text, is_target=True) for text in target)
    return counts


def _record_again(
    recorder: Recorder, choice: Choice, source: Sequence[str], target: Sequence[str] | None
) -> dict[int, RecordedSentence]:
    """Record the chosen sentences, which were not kept; by number, in the order of choice."""
    numbers = choice.all()
    own = [target[i] for i in numbers] if recorder.is_translation and target else None
    again = recorder.sentences([source[i] for i in numbers], own)
    return {
        number: RecordedSentence(**{**vars(sentence), "id": number})
        for number, sentence in zip(numbers, again, strict=True)
    }


def _history(run: Run, measures: Measures) -> AlphaHistory | None:
    steps, alpha = run.alpha_history()
    if not steps or measures.header.attention not in ("adaptive", "annealed"):
        return None
    return AlphaHistory(header=measures.header, steps=steps, alpha=alpha)
