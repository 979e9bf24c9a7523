"""The measures as their definitions say, in float64, one number after the other.

Shares nothing with the library: dense weights, Python loops, ``math``.
"""

import math


class Brute:
    """One layer of a batch: nested lists ``[b][h][q][k]``, and lists of real positions."""

    def __init__(self, weights, key_mask, query_mask, is_causal):
        self.weights = weights.double().tolist()
        self.keys = [[j for j, x in enumerate(row) if x] for row in key_mask.tolist()]
        self.queries = [[i for i, x in enumerate(row) if x] for row in query_mask.tolist()]
        self.is_causal = is_causal
        self.num_heads = weights.shape[1]

    def rows(self, head):
        """Yield sentence, rank of the query, its weights on real keys, how many keys it sees."""
        for b, queries in enumerate(self.queries):
            for rank, i in enumerate(queries):
                row = [self.weights[b][head][i][j] for j in self.keys[b]]
                if sum(row) > 0:
                    seen = min(rank + 1, len(row)) if self.is_causal else len(row)
                    yield b, rank, row, seen

    def per_head(self, function):
        return [function(head) for head in range(self.num_heads)]

    def density(self):
        def of(head):
            used = seen = 0
            for _, _, row, visible in self.rows(head):
                used += sum(x != 0 for x in row)
                seen += visible
            return used / seen if seen else math.nan

        return self.per_head(of)

    def entropy(self):
        def of(head):
            found = [
                -sum(x * math.log(x) for x in row if x > 0) / math.log(visible)
                for _, _, row, visible in self.rows(head)
                if visible > 1
            ]
            return sum(found) / len(found) if found else math.nan

        return self.per_head(of)

    def diversity(self):
        found = []
        for rows in zip(*(self.rows(head) for head in range(self.num_heads)), strict=True):
            visible = rows[0][3]
            if visible < 2:
                continue
            heads = [row for _, _, row, _ in rows]
            mean = [sum(column) / len(heads) for column in zip(*heads, strict=True)]

            def bits(p, base=visible):
                return -sum(x * math.log(x, base) for x in p if x > 0)

            found.append(bits(mean) - sum(bits(p) for p in heads) / len(heads))
        return [sum(found) / len(found) if found else math.nan]

    def offset_weight(self, offset):
        def of(head):
            found = [
                row[rank + offset]
                for _, rank, row, _ in self.rows(head)
                if 0 <= rank + offset < len(row)
            ]
            return sum(found) / len(found) if found else math.nan

        return self.per_head(of)

    def distance(self):
        def of(head):
            total = mass = 0.0
            for _, rank, row, _ in self.rows(head):
                for j, x in enumerate(row):
                    total += x * abs(rank - j)
                    mass += x
            return total / mass if mass else math.nan

        return self.per_head(of)

    def _marked(self, marks, b, rank, row):
        """Ranks of the marked keys that the query sees."""
        last = rank if self.is_causal else len(row)
        return [r for r, j in enumerate(self.keys[b]) if marks[b][j] and r <= last]

    def key_weight(self, marks):
        def of(head):
            found = []
            for b, rank, row, _ in self.rows(head):
                seen = self._marked(marks, b, rank, row)
                if seen:
                    found.append(sum(row[j] for j in seen))
            return sum(found) / len(found) if found else math.nan

        return self.per_head(of)

    def rarity(self, marks):
        def of(head):
            weight = share = 0.0
            for b, rank, row, visible in self.rows(head):
                seen = self._marked(marks, b, rank, row)
                weight += sum(row[j] for j in seen)
                share += len(seen) / visible
            return weight / share if share else math.nan

        return self.per_head(of)

    def merging(self, words, smallest=1):
        def of(head):
            rows = {(b, rank): row for b, rank, row, _ in self.rows(head)}
            found = []
            for b, keys in enumerate(self.keys):
                own = [words[b][j] for j in keys]
                for word in sorted({w for w in own if w >= 0}):
                    pieces = [r for r, w in enumerate(own) if w == word]
                    scores = [
                        sum(rows[b, i][j] for j in pieces if j != i or len(pieces) == 1)
                        for i in pieces
                        if (b, i) in rows
                    ]
                    if len(pieces) >= smallest and scores:
                        found.append(max(scores))
            return sum(found) / len(found) if found else math.nan

        return self.per_head(of)

    def interrogation(self, at, marks):
        def of(head):
            found = []
            for b, rank, row, _ in self.rows(head):
                on = [r for r, j in enumerate(self.keys[b]) if marks[b][j]]
                if at[b][self.queries[b][rank]] and on:
                    found.append(sum(row[j] for j in on))
            return sum(found) / len(found) if found else math.nan

        return self.per_head(of)
