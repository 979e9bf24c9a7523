"""The figures of the paper: their list, and how each is drawn from measured runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adasparse.analysis import figures
from adasparse.analysis.figures import AlphaHistory, HeadPicture, NumberedFigure
from adasparse.analysis.figures.sentences import SentenceChoice, best_head, picture, self_kind
from adasparse.analysis.measures.results import Measures
from adasparse.analysis.recording.storage import RecordedSentence
from adasparse.analysis.tokens.annotations import TokenAnnotations, annotate


@dataclass(frozen=True, kw_only=True, eq=False)
class RunToDraw:
    """A measured run to draw.

    Args:
        measures: Measures over all sentences.
        history: Trajectory of alpha in training; None if it is not known.
        sentences: The sentences chosen to be shown, by number.
        interrogatives: Interrogative words in the language of the source.
    """

    measures: Measures
    history: AlphaHistory | None
    sentences: Mapping[int, RecordedSentence]
    interrogatives: frozenset[str]

    def annotations(self, sentence: int) -> TokenAnnotations:
        """Return the annotations of the source of a sentence."""
        row = self.sentences[sentence].source
        return annotate(row, counts={}, interrogatives=self.interrogatives)


@dataclass(frozen=True, kw_only=True, eq=False)
class FigureSubject:
    """Runs to draw, and the sentences in which their heads are shown."""

    runs: Sequence[RunToDraw]
    sentences: SentenceChoice

    @property
    def measures(self) -> list[Measures]:
        """The measures of each run."""
        return [run.measures for run in self.runs]


@dataclass(frozen=True, kw_only=True)
class FigureSpec:
    """A figure of the paper.

    Args:
        number: Number of the figure in the paper.
        name: Name of its files.
        title: Title, in a few words.
        caption: Explanation of what is drawn.
        draw: Draws it; raises ValueError if the runs do not allow it.
    """

    number: int
    name: str
    title: str
    caption: str
    draw: Callable[[FigureSubject], NumberedFigure]


@dataclass(frozen=True, kw_only=True, eq=False)
class PaperFigure:
    """A drawn figure and its place in the paper."""

    spec: FigureSpec
    figure: NumberedFigure


#: Figures 2 to 10 of Correia, Niculae and Martins (2019), https://arxiv.org/abs/1909.00015.
FIGURES = (
    FigureSpec(
        number=2,
        name="alpha_trajectories",
        title="α while training",
        caption="Every head is a line; those that end highest and lowest, fell, rose and moved the "
        "most stand out.",
        draw=lambda subject: figures.alpha_trajectories(
            [run.history for run in subject.runs if run.history is not None]
        ),
    ),
    FigureSpec(
        number=3,
        name="alpha_histogram",
        title="Learned α",
        caption="Number of heads by α, for each kind of attention. 1 is softmax, 2 is sparsemax.",
        draw=lambda subject: figures.alpha_histogram(subject.measures),
    ),
    FigureSpec(
        number=4,
        name="density_histogram",
        title="Density",
        caption="Number of pairs of head and sentence by density: the share of the visible tokens "
        "that get any weight. Softmax is a single bar at 100%.",
        draw=lambda subject: figures.density_histogram(subject.measures),
    ),
    FigureSpec(
        number=5,
        name="head_density",
        title="Density by layer",
        caption="The heads of each layer, sorted by density; lines join heads of the same rank.",
        draw=lambda subject: figures.head_density(subject.measures),
    ),
    FigureSpec(
        number=6,
        name="head_diversity",
        title="Head diversity",
        caption="Jensen-Shannon divergence between the heads of a layer: 0 if all do the same, 1 "
        "at most. Bands are 95% confidence intervals.",
        draw=lambda subject: figures.head_diversity(subject.measures),
    ),
    FigureSpec(
        number=7,
        name="positional_confidence",
        title="Positional heads",
        caption="Mean weight of each head on the tokens around. Above the points: the number of "
        "heads above the dashed line, and their median.",
        draw=lambda subject: figures.positional_confidence(
            subject.measures, kind=self_kind(subject.measures[0])
        ),
    ),
    FigureSpec(
        number=7,
        name="positional_heads",
        title="The surest head for the previous token",
        caption="In each run, with its mean weight there. Rows look at columns; blank is exactly "
        "zero.",
        draw=lambda subject: figures.head_pictures(
            _best_heads(subject.runs, subject.sentences.position, "previous")
        ),
    ),
    FigureSpec(
        number=8,
        name="merging_heads",
        title="The best head for merging pieces of words",
        caption="In each run, with its score. Frames are words of several pieces.",
        draw=lambda subject: figures.head_pictures(
            _best_heads(subject.runs, subject.sentences.merging, "merging")
        ),
    ),
    FigureSpec(
        number=9,
        name="interrogation_heads",
        title="The best head for finding the question mark",
        caption="In each run, with its mean weight on the final question mark at interrogative "
        "words, which are bold. Below, if there is one, a sentence with such a word that is no "
        "question.",
        draw=lambda subject: figures.head_pictures(_questions(subject)),
    ),
    FigureSpec(
        number=10,
        name="sparsity_extremes",
        title="One head, two sentences",
        caption="The head of each sparse run whose density differs the most between sentences of "
        "similar length: where it is least sparse, and where most.",
        draw=lambda subject: figures.head_pictures(_extremes(subject)),
    ),
)


def draw_figures(subject: FigureSubject) -> tuple[list[PaperFigure], dict[str, str]]:
    """Draw every figure that the runs allow; return them, and why others are missing, by name."""
    drawn: list[PaperFigure] = []
    skipped: dict[str, str] = {}
    for spec in FIGURES:
        try:
            drawn.append(PaperFigure(spec=spec, figure=spec.draw(subject)))
        except ValueError as error:
            skipped[spec.name] = str(error)
    return drawn, skipped


def _best_heads(
    runs: Sequence[RunToDraw], sentence: int | None, key: str
) -> list[list[HeadPicture]]:
    """Return the best head by a measure in each run, in one sentence."""
    if sentence is None:
        raise ValueError(f"No sentence shows {key}.")
    row = []
    for run in runs:
        at = best_head(run.measures, key)
        if at is not None:
            value = run.measures.values(at[0], key)[at[1:]]
            annotations = {"words": run.annotations(sentence)} if key == "merging" else {}
            annotations |= {"asks": run.annotations(sentence)} if key == "interrogation" else {}
            note = f"{value:.1%}"
            row.append(
                picture(
                    run.measures, run.sentences[sentence], at, note=note, annotations=annotations
                )
            )
    if not row:
        raise ValueError(f"No run has a head with a value of {key}.")
    return [row]


def _questions(subject: FigureSubject) -> list[list[HeadPicture]]:
    runs, choice = subject.runs, subject.sentences
    if choice.question is None:
        raise ValueError("No sentence has an interrogative word and ends in a question mark.")
    rows = _best_heads(runs, choice.question, "interrogation")
    if choice.statement is not None:
        rows += _best_heads(runs, choice.statement, "interrogation")
    return rows


def _extremes(subject: FigureSubject) -> list[list[HeadPicture]]:
    rows = []
    for run, extreme in zip(subject.runs, subject.sentences.extremes, strict=True):
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
