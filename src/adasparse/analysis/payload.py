"""The data of the explorer: one dictionary that JSON can hold.

Everything the page shows is in it; the page computes nothing but pictures::

    {
      "version": 1,
      "title": str,
      "measures": [                       # what a head can be sorted by, in order of display
        {"key": str, "label": str, "help": str, "format": "percent" | "number" | "alpha"}
      ],
      "runs": [
        {
          "name": str,                    # unique in the payload
          "attention": str,               # "softmax", "entmax" (fixed), "adaptive" (learned), ...
          "kind": "translation" | "encoder" | "decoder",
          "top": int | null,              # weights kept of each row of long texts; null is all
          "sentences_measured": int,      # over how many sentences the values are
          "groups": [                     # one per kind of attention that the model has
            {
              "kind": "encoder" | "decoder" | "context",
              "queries": "source" | "target",   # which tokens of a sentence the rows are
              "keys": "source" | "target",      # which tokens the columns are
              "layers": int, "heads": int,
              "modules": [str per layer],
              "values": {key: [[number | null per head] per layer]},
              "intervals": {key: [[[low, high] | null per head] per layer]},
              "layer_values": {"diversity": [number | null per layer]},
              "layer_intervals": {"diversity": [[low, high] | null per layer]},
              "roles": [[[{"role": str, "evidence": str}] per head] per layer]
            }
          ],
          "summary": [str],               # sentences in plain words, with numbers
          "sentences": [
            {
              "id": int,                  # the same sentence has the same id in every run
              "source_text": str, "target_text": str | null,
              "source": [str],            # tokens
              "target": [str] | null,     # what the decoder reads; row i reads target[i] and
              "target_next": [str] | null,      # writes target_next[i]
              "top": int | null,          # weights kept of each row here; null is all
              "attention": {kind: [[head per head] per layer]}
            }
          ]
        }
      ]
    }

The weights of one head are a compressed matrix with a row for each query::

    {"crow": str, "col": str, "value": str, "col_type": "uint16" | "uint32"}

``crow`` is little-endian uint32, one more than there are rows: entries ``crow[i]`` to
``crow[i + 1]`` are row i. ``col`` is the key of each entry, rising within a row, of ``col_type``.
``value`` is uint16: the weight times 65535, rounded, and at least 1. All are base64. What has no
entry is exactly zero, or, where ``top`` is a number, may be one of the smaller weights of its row.

Layers and heads are counted from 0 here and from 1 in texts. A number that is not defined, such as
the interrogation score where there is no question, is null. Intervals are 95% confidence intervals
by bootstrap over sentences.
"""
