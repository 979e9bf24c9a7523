import torch

from adasparse.training.trainer import count_tokens

IDS = torch.tensor([[5, 6, 7], [5, 6, 0]])


def test_padding_does_not_count():
    labels = torch.tensor([[8, 9], [8, -100]])
    inputs = {"input_ids": IDS, "attention_mask": (IDS != 0).long(), "labels": labels}
    assert count_tokens(inputs) == 5 + 3


def test_labels_that_are_the_same_text_count_once():
    inputs = {"input_ids": IDS, "labels": IDS.clone()}
    assert count_tokens(inputs, has_target=False) == 6
