"""A payload with everything that a page must cope with, made without a model."""

import base64
from typing import Any

import numpy as np

HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    "\"quoted\" 'twice' & more",
    "<img src=x onerror=alert(2)>",
    "مرحبا",
    "\u202eesrever",
    "👩‍👩‍👧‍👦",
    "x" * 10_000,
    "\n",
    "",
    "\u2028",
    "${1+1}{{7*7}}",
]
MEASURES = [
    {"key": "alpha", "label": "α", "help": "The exponent.", "format": "alpha"},
    {"key": "density", "label": "Density", "help": "Share of weights.", "format": "percent"},
    {"key": "entropy", "label": "Entropy", "help": "Of each row, in nats.", "format": "number"},
    {"key": "previous", "label": "Offset −1", "help": "Weight there.", "format": "percent"},
    {"key": "question", "label": "Question", "help": "Null here and there.", "format": "percent"},
]
SIDES = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "context": ("target", "source"),
}
TEXTS = (
    "Der kleine rote Ball rollt den langen Berg hinunter , und niemand sieht ihn .",
    "The small red ball rolls down the long hill , and nobody sees it .",
)
SOURCE, TARGET = (text.split() for text in TEXTS)


def matrix(rng: Any, rows: int, columns: int, *, sharp: float, is_causal: bool) -> Any:
    """Random rows that sum to 1; the larger ``sharp``, the more of them is exactly zero."""
    scores = rng.normal(size=(rows, columns)) * sharp
    weights = np.maximum(scores - scores.max(1, keepdims=True) + 1.5, 0) ** 2
    if is_causal:
        weights = np.tril(weights)
        weights[:, 0] += weights.sum(1) == 0
    return weights / weights.sum(1, keepdims=True)


def pack(weights: Any) -> dict[str, str]:
    """Return a dense matrix in the form of the payload."""
    rows, columns = np.nonzero(weights)
    crow = np.concatenate([[0], np.cumsum((weights != 0).sum(1))])
    value = np.maximum(1, np.round(weights[rows, columns] * 65535))

    def text(array: Any, dtype: str) -> str:
        return base64.b64encode(array.astype(dtype).tobytes()).decode()

    return {
        "crow": text(crow, "<u4"),
        "col": text(columns, "<u2"),
        "value": text(value, "<u2"),
        "col_type": "uint16",
    }


def sentence(rng: Any, number: int, source: list[str], target: list[str] | None, **size: Any):
    """One sentence with attention of every kind that ``size`` has."""
    tokens = {"source": source, "target": target}
    attention = {}
    for kind, (layers, heads) in size.items():
        queries, keys = (tokens[side] for side in SIDES[kind])
        attention[kind] = [
            [
                pack(
                    matrix(
                        rng,
                        len(queries),
                        len(keys),
                        sharp=0.5 + head,
                        is_causal=kind == "decoder",
                    )
                )
                for head in range(heads)
            ]
            for _ in range(layers)
        ]
    return {
        "id": number,
        "source_text": " ".join(source),
        "target_text": None if target is None else " ".join(target),
        "source": source,
        "target": target,
        "target_next": None if target is None else [*target[1:], "</s>"],
        "top": None,
        "attention": attention,
    }


def group(rng: Any, kind: str, layers: int, heads: int) -> dict[str, Any]:
    """The measures of some heads, drawn at random; alpha rises with the head."""
    values = {
        measure["key"]: rng.uniform(0.01, 1, size=(layers, heads)).round(6).tolist()
        for measure in MEASURES
    }
    values["alpha"] = (1 + rng.permutation(layers * heads) / (layers * heads)).reshape(
        layers, heads
    )
    values["alpha"] = values["alpha"].tolist()
    values["question"] = [[None] * heads for _ in range(layers)]
    roles: list[list[list[dict[str, str]]]] = [[[] for _ in range(heads)] for _ in range(layers)]
    roles[0][1] = [{"role": "previous token", "evidence": "97.1% of its weight at offset −1"}]
    return {
        "kind": kind,
        "queries": SIDES[kind][0],
        "keys": SIDES[kind][1],
        "layers": layers,
        "heads": heads,
        "modules": [f"model.{kind}.layers.{i}.self_attn" for i in range(layers)],
        "values": values,
        "intervals": {
            "density": [[[x * 0.9, x * 1.1] for x in row] for row in values["density"]],
        },
        "layer_values": {"diversity": [0.3] * layers},
        "layer_intervals": {"diversity": [[0.2, 0.4]] * layers},
        "roles": roles,
    }


def run(name: str, attention: str, *, seed: int, hostile: list[str] = HOSTILE) -> dict[str, Any]:
    """A translation model of 3 layers of 8 heads of each kind, with three sentences."""
    rng = np.random.default_rng(seed)
    size = {"encoder": (3, 8), "decoder": (3, 8), "context": (3, 8)}
    return {
        "name": name,
        "attention": attention,
        "kind": "translation",
        "top": None,
        "sentences_measured": 1014,
        "groups": [group(rng, kind, *shape) for kind, shape in size.items()],
        "summary": [
            "Encoder layer 1, head 2 looks at the previous token, 97.1% of its weight, α = 1.91.",
            f"The name of this run is {name}.",
        ],
        "sentences": [
            sentence(rng, 0, [*SOURCE, "</s>"], ["<s>", *TARGET], **size),
            sentence(rng, 1, [*hostile, "</s>"], ["<s>", *hostile], **size),
            sentence(rng, 2, SOURCE * 5, TARGET * 5, **size),
        ],
    }


def payload(title: str = "Heads of two runs") -> dict[str, Any]:
    """Two runs of the same shape; the name of the second is hostile, too."""
    return {
        "version": 1,
        "title": title,
        "measures": MEASURES,
        "runs": [
            run("adaptive", "adaptive", seed=0),
            run("<b>soft&max</b>", "softmax", seed=1),
        ],
    }


def long_payload(length: int = 4096, top: int = 16) -> dict[str, Any]:
    """A decoder-only model of one head that read a long text; ``top`` weights of each row kept."""
    rng = np.random.default_rng(0)
    cols = [np.sort(rng.permutation(i + 1)[:top]) for i in range(length)]
    crow = np.concatenate([[0], np.cumsum([len(x) for x in cols])])
    value = np.concatenate([np.full(len(x), 65535 // (len(x) + 1)) for x in cols])

    def text(array: Any, dtype: str) -> str:
        return base64.b64encode(array.astype(dtype).tobytes()).decode()

    head = {
        "crow": text(crow, "<u4"),
        "col": text(np.concatenate(cols), "<u4"),
        "value": text(value, "<u2"),
        "col_type": "uint32",
    }
    tokens = [f"w{i}" for i in range(length)]
    heads = group(rng, "decoder", 1, 2)
    heads.update(queries="source", keys="source")
    return {
        "version": 1,
        "title": "A long text",
        "measures": MEASURES,
        "runs": [
            {
                "name": "decoder",
                "attention": "entmax",
                "kind": "decoder",
                "top": top,
                "sentences_measured": 1,
                "groups": [heads],
                "summary": [],
                "sentences": [
                    {
                        "id": 0,
                        "source_text": " ".join(tokens),
                        "target_text": None,
                        "source": tokens,
                        "target": None,
                        "target_next": None,
                        "top": top,
                        "attention": {"decoder": [[head, head]]},
                    }
                ],
            }
        ],
    }
