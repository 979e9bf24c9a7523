"""All figures of an analysis: figures 2 to 10 of the paper for the runs at hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adasparse.analysis import draw
from adasparse.analysis.draw import AlphaHistory, HeadPicture, NumberedFigure
from adasparse.analysis.examples import Choice, best_head, picture, self_kind
from adasparse.analysis.marks import TokenMarks, mark_tokens
from adasparse.analysis.meter import Measures
from adasparse.analysis.recording import RecordedSentence


@dataclass(frozen=True, kw_only=True, eq=False)
class GalleryFigure:
    """A figure with its name in files, a title, and how to read it."""

    name: str
    title: str
    caption: str
    figure: NumberedFigure


@dataclass(frozen=True, kw_only=True, eq=False)
class Exhibit:
    """A run to draw.

    Args:
        measures: Over all sentences.
        history: Of its alpha in training; None if that is not known.
        sentences: Those that were chosen to be shown, by number.
        interrogatives: Words that ask, in the language of the source.
    """

    measures: Measures
    history: AlphaHistory | None
    sentences: Mapping[int, RecordedSentence]
    interrogatives: frozenset[str]

    def marks(self, sentence: int) -> TokenMarks:
        """Return the marks of the source of a sentence."""
        row = self.sentences[sentence].source
        return mark_tokens(row, counts={}, interrogatives=self.interrogatives)


def draw_gallery(
    runs: Sequence[Exhibit], choice: Choice
) -> tuple[list[GalleryFigure], dict[str, str]]:
    """Draw every figure that the runs allow; return them, and why others are missing, by name."""
    measures = [run.measures for run in runs]
    histories = [run.history for run in runs if run.history is not None]
    kind = self_kind(measures[0])
    makers: list[tuple[str, str, str, Callable[[], NumberedFigure]]] = [
        (
            "alpha_trajectories",
            "α while training",
            "Every head is a line; those that end highest and lowest, fell, rose and moved the "
            "most stand out.",
            lambda: draw.alpha_trajectories(histories),
        ),
        (
            "alpha_histogram",
            "Learned α",
            "How many heads have which α, by kind of attention. 1 is softmax, 2 is sparsemax.",
            lambda: draw.alpha_histogram(measures),
        ),
        (
            "density_histogram",
            "Density",
            "How many pairs of head and sentence have which density: the share of the visible "
            "tokens that get any weight. Softmax is a single bar at 100%.",
            lambda: draw.density_histogram(measures),
        ),
        (
            "head_density",
            "Density by layer",
            "The heads of each layer, sorted by density; lines join heads of the same rank.",
            lambda: draw.head_density(measures),
        ),
        (
            "head_diversity",
            "Head diversity",
            "Jensen-Shannon divergence between the heads of a layer: 0 if all do the same, 1 at "
            "most. Bands are 95% confidence intervals.",
            lambda: draw.head_diversity(measures),
        ),
        (
            "positional_confidence",
            "Positional heads",
            "Mean weight of each head on the tokens around. Above the points: how many heads pass "
            "the dashed line, and the median of those.",
            lambda: draw.positional_confidence(measures, kind=kind),
        ),
        (
            "positional_heads",
            "The surest head for the previous token",
            "In each run, with its mean weight there. Rows look at columns; blank is exactly zero.",
            lambda: draw.head_pictures(_best_heads(runs, choice.position, "previous")),
        ),
        (
            "merging_heads",
            "The best head for merging pieces of words",
            "In each run, with its score. Frames are words of several pieces.",
            lambda: draw.head_pictures(_best_heads(runs, choice.merging, "merging")),
        ),
        (
            "interrogation_heads",
            "The best head for finding the question mark",
            "In each run, with its mean weight on the final question mark at interrogative words, "
            "which are bold. Below, if there is one, a sentence with such a word that is no "
            "question.",
            lambda: draw.head_pictures(_questions(runs, choice)),
        ),
        (
            "sparsity_extremes",
            "One head, two sentences",
            "The head of each sparse run whose density differs the most between sentences of "
            "similar length: where it is least sparse, and where most.",
            lambda: draw.head_pictures(_extremes(runs, choice)),
        ),
    ]
    figures, skipped = [], {}
    for name, title, caption, make in makers:
        try:
            figure = make()
        except ValueError as error:
            skipped[name] = str(error)
        else:
            figures.append(GalleryFigure(name=name, title=title, caption=caption, figure=figure))
    return figures, skipped


def _best_heads(runs: Sequence[Exhibit], sentence: int | None, key: str) -> list[list[HeadPicture]]:
    """The best head by a measure in each run, in one sentence."""
    if sentence is None:
        raise ValueError(f"No sentence shows {key}.")
    row = []
    for run in runs:
        at = best_head(run.measures, key)
        if at is not None:
            value = run.measures.values(at[0], key)[at[1:]]
            marks = {"words": run.marks(sentence)} if key == "merging" else {}
            marks |= {"asks": run.marks(sentence)} if key == "interrogation" else {}
            note = f"{value:.1%}"
            row.append(picture(run.measures, run.sentences[sentence], at, note=note, marks=marks))
    if not row:
        raise ValueError(f"No run has a head with a value of {key}.")
    return [row]


def _questions(runs: Sequence[Exhibit], choice: Choice) -> list[list[HeadPicture]]:
    if choice.question is None:
        raise ValueError("No sentence has an interrogative word and ends in a question mark.")
    rows = _best_heads(runs, choice.question, "interrogation")
    if choice.statement is not None:
        rows += _best_heads(runs, choice.statement, "interrogation")
    return rows


def _extremes(runs: Sequence[Exhibit], choice: Choice) -> list[list[HeadPicture]]:
    rows = []
    for run, extreme in zip(runs, choice.extremes, strict=True):
        if extreme is None:
            continue
        *sentences, at = extreme
        kind, layer, head = at
        density = run.measures.by_sentence(kind, "density")[:, layer, head]
        rows.append(
            [
                picture(run.measures, run.sentences[i], at, note=f"density {density[i]:.1%}")
                for i in sentences
            ]
        )
    if not rows:
        raise ValueError("No run has a head whose density differs between sentences.")
    return rows
