"""A decoder-only language model for transformers whose attention stays sharp in long contexts."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    Cache,
    DynamicCache,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import slice_logits_to_keep
from transformers.utils.generic import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from adasparse.longcontext.config import LongContextConfig
from adasparse.longcontext.layers import LongContextAttention, LongContextLayer, layer_context
from adasparse.longcontext.visibility import visibility_of
from adasparse.nn import LearnedAlpha, LengthScale


class LongContextPreTrainedModel(PreTrainedModel):
    """Base class of these models, with their traits for transformers."""

    config: LongContextConfig
    config_class = LongContextConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # Transformers reads these from the class and declares them as they are here.
    _no_split_modules = ["LongContextLayer"]  # noqa: RUF012
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _keep_in_fp32_modules_strict = ["alpha"]  # noqa: RUF012
    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": LongContextLayer,
        "attentions": LongContextAttention,
    }

    def _init_weights(self, module: nn.Module) -> None:
        """Set what no checkpoint has set."""
        if isinstance(module, (LearnedAlpha, LengthScale)):
            if not all(getattr(x, "_is_hf_initialized", False) for x in module.parameters()):
                module.reset_parameters()
        else:
            super()._init_weights(module)


class LongContextModel(LongContextPreTrainedModel):
    """Tokens to vectors; see ``LongContextForCausalLM``."""

    def __init__(self, config: LongContextConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            LongContextLayer(config, i) for i in range(config.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    @capture_outputs  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Return vectors ``(b, q, n)``; the arguments are those of ``LongContextForCausalLM``."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("exactly one of input_ids and inputs_embeds must be given.")
        if kwargs.get("position_ids") is not None:
            raise ValueError(
                "position_ids must be None: positions follow from attention_mask, in which padding "
                "is 0."
            )
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        num_past = 0 if past_key_values is None else int(past_key_values.get_seq_length())
        visibility = visibility_of(
            attention_mask, num_queries=x.shape[1], num_past=num_past, device=x.device
        )
        context = layer_context(self.config, visibility, x.dtype)
        for layer in self.layers:
            x = layer(x, context=context, past_key_values=past_key_values)
        return BaseModelOutputWithPast(
            last_hidden_state=self.norm(x), past_key_values=past_key_values
        )


class LongContextForCausalLM(LongContextPreTrainedModel, GenerationMixin):
    """Predicts the next token; generates, trains, saves and loads as models of transformers do.

    Example:
        >>> config = LongContextConfig(vocab_size=10, hidden_size=16, num_attention_heads=2)
        >>> model = LongContextForCausalLM(config)
        >>> tokens = torch.tensor([[1, 2, 3]])
        >>> model(tokens, labels=tokens).logits.shape
        torch.Size([1, 3, 10])
        >>> model.generate(tokens, max_new_tokens=2).shape
        torch.Size([1, 5])
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: LongContextConfig) -> None:
        super().__init__(config)
        self.model = LongContextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Return logits, and a loss if there are labels.

        Args:
            input_ids: ``(b, q)``.
            attention_mask: ``(b, k)``, 0 for padding, of cached tokens as well.
            past_key_values: Keys and values of the tokens before.
            inputs_embeds: ``(b, q, n)``, in place of ``input_ids``.
            labels: ``(b, q)``: what logits one place earlier are to predict; -100 is left out.
            use_cache: Whether to keep keys and values.
            logits_to_keep: How many of the last places, or which ones, get logits and count in the
                loss; all if 0.
            **kwargs: ``num_items_in_batch``, by which the sum of losses is divided, and what
                transformers collects, such as ``output_attentions``.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits = self.lm_head(slice_logits_to_keep(outputs.last_hidden_state, logits_to_keep))
        loss = None
        if labels is not None:
            following = pad(labels, (0, 1), value=-100)[:, 1:, None]
            loss = self.loss_function(
                logits=logits,
                labels=labels,
                shift_labels=slice_logits_to_keep(following, logits_to_keep).flatten(),
                vocab_size=self.config.vocab_size,
                **kwargs,
            )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    @staticmethod
    def create_masks_for_generate(
        *args: Any, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor | None:
        """Return the mask as it is, also where a cache of fixed size would get a matrix."""
        return attention_mask


AutoConfig.register(LongContextConfig.model_type, LongContextConfig, exist_ok=True)
AutoModel.register(LongContextConfig, LongContextModel, exist_ok=True)
AutoModelForCausalLM.register(LongContextConfig, LongContextForCausalLM, exist_ok=True)
