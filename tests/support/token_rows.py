"""Rows of given tokens."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from adasparse.analysis import TokenReader


def from_tokens(*tokens):
    """A tokenizer that knows these tokens, and their numbers."""
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(["</s>", "<unk>", *tokens]))}
    word_level = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    word_level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=word_level, eos_token="</s>", unk_token="<unk>")
    return TokenReader(made).read([vocabulary[token] for token in tokens])
