"""Dispersion statistics of the heads of a layer, accumulated over queries."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from adasparse.analysis.recording.attention_weights import weight_blocks
from adasparse.integrations.calls import AttentionCall
from adasparse.longcontext.layers import LongContextAttention
from adasparse.nn import LengthScale


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and standard deviation over queries.

    Args:
        mean: Mean.
        std: Standard deviation of the population.
    """

    mean: float
    std: float


@dataclass(frozen=True, kw_only=True)
class HeadDispersion:
    """Dispersion of one head, mean over the queries that predict something.

    Args:
        layer: Index of the layer, from 0 on.
        head: Index of the head, from 0 on.
        alpha: Exponent of its entmax; 1 is softmax.
        entropy: Entropy of the weights in nats.
        relative_entropy: Entropy divided by the logarithm of the number of visible keys; None if
            no query sees more than one.
        support: Number of weights that are not exactly zero. Softmax also has zeros, where weights
            underflow in the precision in use: under ALiBi, far away from a query.
        support_share: Support divided by the number of visible keys.
        relevant: Weight on the token that holds the answer, mean over the queries that have one;
            None if none has.
        beta: Coefficient of the length scale ``1 + beta * log(n + 1) ** gamma`` of
            [ASEntmax](https://arxiv.org/abs/2506.16640); None for heads without one.
        gamma: Exponent of the same; None for heads without one.
        scale: Length scale of ASEntmax or [SSMax](https://arxiv.org/abs/2501.19399); None for heads
            without one.
    """

    layer: int
    head: int
    alpha: float
    entropy: float
    relative_entropy: float | None
    support: float
    support_share: float
    relevant: float | None
    beta: Spread | None
    gamma: Spread | None
    scale: Spread | None

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and dictionaries only."""
        return asdict(self)


class Moments:
    """Running mean and standard deviation of each head, in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor = torch.zeros(())
        self.squares: Tensor = torch.zeros(())

    def add(self, values: Tensor) -> None:
        """Add values ``(h, r)``."""
        r = values.shape[1]
        if not r:
            return
        values = values.double()
        mean = values.mean(1)
        squares = (values - mean[:, None]).square().sum(1)
        if not self.count:
            self.count, self.mean, self.squares = r, mean, squares
            return
        # The parallel update of Chan, Golub and LeVeque (1979).
        total = self.count + r
        gap = mean - self.mean
        self.squares = self.squares + squares + gap.square() * (self.count * r / total)
        self.mean = self.mean + gap * (r / total)
        self.count = total

    def spreads(self) -> list[Spread]:
        """Return the statistics of each head; an empty list if there were no values."""
        if not self.count:
            return []
        std = (self.squares / self.count).sqrt()
        return [
            Spread(mean=m, std=s) for m, s in zip(self.mean.tolist(), std.tolist(), strict=True)
        ]


class LayerStatistics:
    """Dispersion statistics of the heads of one layer.

    Args:
        layer: Index of the layer.
    """

    def __init__(self, layer: int) -> None:
        self.layer = layer
        self.alpha: list[float] = []
        self.scaled: tuple[int, ...] = ()
        self.entropy, self.relative, self.support, self.share, self.relevant = (
            Moments() for _ in range(5)
        )
        self.scales = Moments(), Moments(), Moments()  # beta, gamma and the scale itself

    def add(
        self,
        call: AttentionCall,
        example: int,
        rows: Tensor,
        relevant: Tensor,
        layer_input: Tensor,
    ) -> None:
        """Add some queries of an example.

        Args:
            call: Attention call of all examples.
            example: Index of the example in the batch.
            rows: ``(r,)``: positions of the queries, ascending.
            relevant: ``(r,)``: position of the answer to each; negative for none.
            layer_input: ``(r, n)``: input of the layer at these queries.
        """
        alpha = torch.as_tensor(call.alpha, dtype=torch.float64)
        self.alpha = alpha.expand(call.query.shape[1]).tolist()
        b, h, q, _ = call.query.shape
        visible = call.visible().expand(b, h, q, 1)[example, 0, rows, 0]
        for block, weights in weight_blocks(call, example, rows):
            self._add_weights(weights, visible[block], relevant[block])
        assert isinstance(call.module, LongContextAttention)
        if call.module.length_scale is not None:
            self._add_scale(call.module.length_scale, visible, layer_input)

    def _add_weights(self, weights: Tensor, visible: Tensor, relevant: Tensor) -> None:
        """Add weights ``(h, s, k)``."""
        entropy = torch.special.entr(weights).sum(-1, dtype=torch.float64)
        support = weights.count_nonzero(-1).double()
        has_choice = visible > 1
        self.entropy.add(entropy)
        self.relative.add((entropy / visible.double().log())[:, has_choice])
        self.support.add(support)
        self.share.add(support / visible)
        h, _, k = weights.shape
        has_answer = relevant >= 0
        answer = relevant[has_answer]
        picked = weights[:, has_answer].gather(-1, answer.clamp(max=k - 1).expand(h, -1)[..., None])
        self.relevant.add(picked[..., 0] * (answer < k))

    def _add_scale(self, scale: LengthScale, visible: Tensor, layer_input: Tensor) -> None:
        self.scaled = scale.heads
        factor = scale(visible[:, None], layer_input).expand(scale.num_heads, -1, 1)
        beta, gamma, whole = self.scales
        whole.add(factor[list(scale.heads), :, 0])
        if scale.kind != "ssmax":
            learned = scale.beta_and_gamma(layer_input)
            beta.add(learned[0].expand_as(factor[list(scale.heads)])[..., 0])
            gamma.add(learned[1].expand_as(factor[list(scale.heads)])[..., 0])

    def heads(self) -> list[HeadDispersion]:
        """Return the dispersion of each head over all queries added."""
        entropy, support, share = (x.spreads() for x in (self.entropy, self.support, self.share))
        relative, relevant = (dict(enumerate(x.spreads())) for x in (self.relative, self.relevant))
        beta, gamma, scale = (
            dict(zip(self.scaled, x.spreads(), strict=False)) for x in self.scales
        )
        return [
            HeadDispersion(
                layer=self.layer,
                head=i,
                alpha=self.alpha[i],
                entropy=entropy[i].mean,
                relative_entropy=_mean(relative.get(i)),
                support=support[i].mean,
                support_share=share[i].mean,
                relevant=_mean(relevant.get(i)),
                beta=beta.get(i),
                gamma=gamma.get(i),
                scale=scale.get(i),
            )
            for i in range(len(entropy))
        ]


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean
