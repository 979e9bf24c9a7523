"""Registry of the measures: keys, labels, explanations and kinds of attention."""

from collections.abc import Callable
from dataclasses import dataclass

from adasparse.analysis.measures import definitions as measure
from adasparse.analysis.measures.definitions import Sums
from adasparse.analysis.recording.layer_weights import LayerWeights
from adasparse.analysis.tokens.annotations import TokenAnnotations

_ANY = ("encoder", "decoder", "context")
_SELF = ("encoder", "decoder")

Compute = Callable[[LayerWeights, TokenAnnotations, TokenAnnotations], Sums]


@dataclass(frozen=True, kw_only=True)
class MeasureInfo:
    """A measure as it is displayed.

    Args:
        key: Name in files.
        label: Name in figures.
        help: Definition in a sentence.
        format: ``"percent"``, ``"number"`` or ``"alpha"``.
        kinds: Kinds of attention for which it is defined.
        compute: Contribution of one layer, from the annotations of queries and keys; None for
            alpha.
    """

    key: str
    label: str
    help: str
    format: str = "percent"
    kinds: tuple[str, ...] = _ANY
    compute: Compute | None = None


def _offset(offset: int) -> Compute:
    return lambda layer, query, key: measure.offset_weight.sums(layer, offset=offset)


#: All measures of heads, in the order in which they are shown.
MEASURES = (
    MeasureInfo(
        key="alpha",
        label="α",
        help="Exponent of the head: 1 is softmax, 2 is sparsemax.",
        format="alpha",
    ),
    MeasureInfo(
        key="density",
        label="density",
        help="Share of the visible tokens that get any weight.",
        compute=lambda layer, query, key: measure.density.sums(layer),
    ),
    MeasureInfo(
        key="entropy",
        label="entropy",
        help="Spread of the weights: 0% is a single token, 100% all visible tokens alike.",
        compute=lambda layer, query, key: measure.entropy.sums(layer),
    ),
    MeasureInfo(
        key="previous",
        label="previous token",
        help="Mean weight on the token before.",
        kinds=_SELF,
        compute=_offset(-1),
    ),
    MeasureInfo(
        key="next",
        label="next token",
        help="Mean weight on the token after.",
        kinds=("encoder",),
        compute=_offset(1),
    ),
    MeasureInfo(
        key="self",
        label="same token",
        help="Mean weight of a token on itself.",
        kinds=_SELF,
        compute=_offset(0),
    ),
    MeasureInfo(
        key="previous2",
        label="two before",
        help="Mean weight on the token two before.",
        kinds=_SELF,
        compute=_offset(-2),
    ),
    MeasureInfo(
        key="next2",
        label="two after",
        help="Mean weight on the token two after.",
        kinds=("encoder",),
        compute=_offset(2),
    ),
    MeasureInfo(
        key="distance",
        label="distance",
        help="Mean number of tokens between a token and what it looks at.",
        format="number",
        kinds=_SELF,
        compute=lambda layer, query, key: measure.distance.sums(layer),
    ),
    MeasureInfo(
        key="merging",
        label="subword merging",
        help="Mean over words of the largest weight that a piece gives to the rest of its word; "
        "for words of one piece, the weight on itself.",
        kinds=_SELF,
        compute=lambda layer, query, key: measure.merging.sums(layer, key.words),
    ),
    MeasureInfo(
        key="split_merging",
        label="merging, split words",
        help="The same over words of several pieces only.",
        kinds=_SELF,
        compute=lambda layer, query, key: measure.split_merging.sums(layer, key.words),
    ),
    MeasureInfo(
        key="interrogation",
        label="interrogation",
        help="Mean weight on the final question mark at interrogative words.",
        kinds=("encoder", "context"),
        compute=lambda layer, query, key: measure.interrogation.sums(
            layer, query.interrogative, key.question
        ),
    ),
    MeasureInfo(
        key="punctuation",
        label="punctuation",
        help="Mean weight on punctuation marks, where there are any.",
        compute=lambda layer, query, key: measure.key_weight.sums(layer, key.punctuation),
    ),
    MeasureInfo(
        key="special",
        label="separators",
        help="Mean weight on tokens that no text contains: start, separators, end.",
        compute=lambda layer, query, key: measure.key_weight.sums(layer, key.special),
    ),
    MeasureInfo(
        key="end",
        label="end of sentence",
        help="Mean weight on the token that ends the sentence.",
        kinds=("encoder", "context"),
        compute=lambda layer, query, key: measure.key_weight.sums(layer, key.end),
    ),
    MeasureInfo(
        key="rarity",
        label="rare words",
        help="Weight on the rarest tokens of the sentence, as a multiple of their share.",
        format="number",
        compute=lambda layer, query, key: measure.rarity.sums(layer, key.rare),
    ),
)
#: The measure of layers.
DIVERSITY = "diversity"
