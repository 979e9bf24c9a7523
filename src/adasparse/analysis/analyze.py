"""Analysis of trained models over a set of sentences: record, measure, choose, draw, write."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from adasparse._files import write_atomically
from adasparse.analysis.explorer.page import ReportFigure, write_report
from adasparse.analysis.explorer.payload import MeasuredRun, Payload, build_payload, run_payload
from adasparse.analysis.figures import AlphaHistory
from adasparse.analysis.figures.paper import FigureSubject, PaperFigure, RunToDraw, draw_figures
from adasparse.analysis.figures.sentences import (
    SentenceChoice,
    SentenceFacts,
    choose_sentences,
    sentence_facts,
)
from adasparse.analysis.figures.style import figure_files, write_figure_files
from adasparse.analysis.measures.collect import MeasureCollector
from adasparse.analysis.measures.results import Measures
from adasparse.analysis.recording.recorder import Recorder
from adasparse.analysis.recording.storage import RecordedSentence
from adasparse.analysis.runs import Run, load_run, unique_names
from adasparse.analysis.text import read_sentences
from adasparse.analysis.tokens.annotations import count_tokens
from adasparse.analysis.tokens.interrogatives import guess_language, interrogatives_of

#: Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """The heads of some runs: measures, recorded sentences and figures.

    Args:
        measures: Measures of each run.
        sentences: Some sentences, recorded from each run, the most interesting first.
        figures: All figures that the runs allow.
        skipped: Reasons why others are missing, by name.
        languages: Languages of source and target, as far as they are known.
        title: Title of the report.
    """

    measures: tuple[Measures, ...]
    sentences: tuple[tuple[RecordedSentence, ...], ...]
    figures: tuple[PaperFigure, ...]
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
            "figures": [figure.spec.name for figure in self.figures],
            "skipped": dict(self.skipped),
            "runs": [_with_extremes(measures) for measures in self.measures],
        }

    def write(self, out: str | Path) -> list[Path]:
        """Write ``index.html``, ``measures.json`` and ``figures/``; return all paths."""
        out = Path(out)
        paths = [out / "measures.json"]
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=1)
        write_atomically(paths[0], text + "\n", make_folders=True)
        figures = []
        for drawn in self.figures:
            spec, files = drawn.spec, figure_files(drawn.figure)
            paths += write_figure_files(files, out / "figures" / spec.name)
            figures.append(
                ReportFigure(
                    title=spec.title,
                    caption=spec.caption,
                    image=files["svg"],
                    links={x.upper(): f"figures/{spec.name}.{x}" for x in ("csv", "svg", "png")},
                )
            )
        return [write_report(self.payload(), out / "index.html", figures=figures), *paths]


def _with_extremes(measures: Measures) -> dict[str, Any]:
    """Return the data of a run, with the sentences in which each head is least and most sparse.

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
        runs: Loaded runs, with different names.
        source: Sentences that every run reads.
        target: Their translations, which translation models are made to write.
        title: Title of the report.
        languages: Languages of ``"source"`` and ``"target"``, for interrogative words; guessed if
            None.
        resamples: Number of bootstrap resamples for confidence intervals.
        seed: Seed of the bootstrap.
        examples: Number of sentences to keep for the explorer, besides those of the figures.
        progress: Called for every sentence.
    """
    _check(runs, source, target)
    if languages is None:
        languages = {
            "source": guess_language(source),
            "target": guess_language(target or ()),
        }
    interrogatives = interrogatives_of(languages)
    asking = interrogatives.get("source", frozenset())
    recorders = [Recorder(run.model, run.tokenizer, name=run.name) for run in runs]
    facts: list[SentenceFacts] = []
    measured = []
    for recorder in recorders:
        collector = MeasureCollector(
            recorder.header,
            counts=_counts(recorder, source, target),
            interrogatives=interrogatives,
        )
        own = target if recorder.is_translation else None
        for number, sentence in enumerate(recorder.sentences(source, own), start=1):
            collector.add(sentence)
            if len(facts) < number:
                facts.append(sentence_facts(sentence.source, asking))
            _tell(progress, f"measuring {recorder.header.name}", number, len(source))
        measured.append(collector.result(resamples=resamples, seed=seed))
    choice = choose_sentences(facts, measured, more=examples)
    recorded = [_record_again(recorder, choice, source, target) for recorder in recorders]
    drawable = [
        RunToDraw(
            measures=measures,
            history=_history(run, measures),
            sentences=sentences,
            interrogatives=asking,
        )
        for run, measures, sentences in zip(runs, measured, recorded, strict=True)
    ]
    _tell(progress, "drawing", 0, 1)
    figures, skipped = draw_figures(FigureSubject(runs=drawable, sentences=choice))
    _tell(progress, "drawing", 1, 1)
    return Analysis(
        measures=tuple(measured),
        sentences=tuple(tuple(sentences.values()) for sentences in recorded),
        figures=tuple(figures),
        skipped=skipped,
        languages=languages,
        title=title,
    )


def analyze_folders(
    runs: Sequence[str | Path],
    data: Sequence[str | Path],
    *,
    max_sentences: int = 1000,
    source_lang: str | None = None,
    target_lang: str | None = None,
    title: str = "What heads do",
    seed: int = 0,
    progress: Progress | None = None,
) -> Analysis:
    """Analyze runs from their folders, over sentences from files.

    Args:
        runs: Folders of trained models.
        data: A prepared folder, whose dev set is used; a text file; or a text file and one with
            its translation.
        max_sentences: Number of sentences to use at most.
        source_lang: Language of the source; known from the data or guessed if None.
        target_lang: Language of the target, likewise.
        title: Title of the report.
        seed: Seed of the bootstrap.
        progress: Called for every sentence.
    """
    text = read_sentences(data, max_sentences)
    names = unique_names([Path(run) for run in runs])
    return analyze(
        [load_run(run, name=name) for run, name in zip(runs, names, strict=True)],
        text.source,
        text.target,
        title=title,
        languages=text.languages(source=source_lang, target=target_lang),
        seed=seed,
        progress=progress,
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
    recorder: Recorder, choice: SentenceChoice, source: Sequence[str], target: Sequence[str] | None
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
