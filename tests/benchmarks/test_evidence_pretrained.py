import json
import struct
import zipfile

import numpy as np
import pytest
import torch
from benchmarks.evidence.pretrained import roles
from benchmarks.evidence.pretrained.ctranslate2 import read_marian
from benchmarks.evidence.pretrained.finetune import LOG, FineTuning
from benchmarks.evidence.pretrained.minilm import spearman
from benchmarks.evidence.pretrained.opus_mt import fewest_pieces
from benchmarks.evidence.pretrained.roles import head_roles
from benchmarks.evidence.pretrained.speed import compare_speed
from benchmarks.evidence.pretrained.subject import Subject, divergence
from transformers import LlamaConfig, LlamaForCausalLM, MarianConfig, MarianMTModel

from adasparse.integrations.huggingface import SparsityConfig, sparsify

SETTINGS = {
    **{"variant": "fixed", "alpha": 1.5, "steps": 8, "anneal_steps": 4, "batch_size": 2},
    **{"learning_rate": 1e-2, "alpha_learning_rate": 1e-1, "warmup_steps": 2, "distill": True},
    **{"bf16": False, "log_steps": 2, "eval_steps": 4},
}


class Tiny(Subject):
    name = "tiny"

    def load(self):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=16,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
        )
        model = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.q_proj.weight.mul_(20)  # scores that tell keys apart
                layer.self_attn.k_proj.weight.mul_(20)
        return model

    def batch(self, step, seed, size):
        generator = torch.Generator().manual_seed(100 * seed + step)
        return {"input_ids": torch.randint(16, (size, 12), generator=generator)}

    def loss(self, model, teacher, batch):
        logits = model(**batch).logits
        mask = torch.ones_like(batch["input_ids"], dtype=torch.bool)
        return divergence(logits, teacher(**batch).logits.detach(), mask)

    def measure(self, model, limits):
        return {"quality": float(limits["count"])}

    def sample(self):
        return self.batch(0, 9, 4)


def _training(tmp_path, name, variant, *, save_seconds=0.0):
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    return FineTuning(
        Tiny(tmp_path, tmp_path),
        {**SETTINGS, "variant": variant},
        limits={"count": 3},
        seed=1,
        folder=folder,
        save_seconds=save_seconds,
    )


@pytest.mark.parametrize(
    ("variant", "killed_after"),
    [("softmax", 2), ("fixed", 6), ("learned", 2), ("learned", 4), ("learned", 6)],
)
def test_killed_fine_tuning_ends_where_an_undisturbed_one_does(
    tmp_path, variant, killed_after, monkeypatch
):
    expected = _training(tmp_path, "whole", variant).run()
    training = _training(tmp_path, "killed", variant)
    update = FineTuning._update

    def dies(self):
        if self.step == killed_after:
            raise KeyboardInterrupt
        return update(self)

    with monkeypatch.context() as patch:
        patch.setattr(FineTuning, "_update", dies)
        with pytest.raises(KeyboardInterrupt):
            training.run()
    resumed = _training(tmp_path, "killed", variant)
    assert resumed.step == killed_after
    found = resumed.run().state_dict()
    assert found.keys() == expected.state_dict().keys()
    for key, value in expected.state_dict().items():
        assert torch.equal(found[key], value), key


def test_alpha_is_annealed_and_then_learned(tmp_path):
    training = _training(tmp_path, "run", "learned")
    model = training.run()
    alphas = [x for x in model.state_dict() if "alpha" in x]
    assert len(alphas) == 2
    moved = [model.state_dict()[x] for x in alphas]
    # It starts at 1.5, in the middle of its range, where the logit is zero.
    assert all((x != 0).all() for x in moved)
    log = [json.loads(x) for x in (tmp_path / "run" / LOG).read_text().splitlines()]
    measured = [x for x in log if "measures" in x]
    assert [x["step"] for x in measured] == [0, 4, 8]
    assert measured[0]["measures"] == {"quality": 3.0}
    assert measured[0]["density"] > measured[-1]["density"]


def test_control_stays_softmax(tmp_path):
    model = _training(tmp_path, "run", "softmax").run()
    assert not any("entmax" in name for name in model.state_dict())


def test_roles_are_the_weights_on_first_token_and_neighbors(tmp_path):
    subject = Tiny(tmp_path, tmp_path)
    model, inputs = subject.load(), subject.sample()
    found = head_roles(model, inputs)["attentions"]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).attentions[1]  # (b, h, q, k)
    queries = range(1, weights.shape[-1])
    expected = {
        "first": torch.stack([weights[:, :, q, 0] for q in queries]),
        "previous": torch.stack([weights[:, :, q, q - 1] for q in queries]),
        "self": torch.stack([weights[:, :, q, q] for q in queries]),
        "largest": torch.stack([weights[:, :, q].amax(-1) for q in queries]),
    }
    for name, values in expected.items():
        assert found[name][1] == pytest.approx(values.mean((0, 1)).tolist(), abs=1e-6)
    assert found["next"][1] == [0.0, 0.0]  # causal
    sparsify(model, SparsityConfig(alpha="fixed", init_alpha=2.0))
    assert head_roles(model, inputs)["attentions"]["largest"] > found["largest"]


def test_padding_counts_in_no_role():
    weights = torch.zeros(2, 1, 3, 3)
    weights[..., 0] = 1.0
    weights[1, 0, 2] = torch.tensor([0.0, 0.0, 1.0])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert roles._roles([weights], mask, mask)["first"] == [[1.0]]


def test_speeds_are_measured_at_every_length(tmp_path):
    models = {"a": Tiny(tmp_path, tmp_path).load(), "b": Tiny(tmp_path, tmp_path).load()}
    rows = compare_speed(models, torch.arange(12) % 16, [4, 8], decoded=2, rounds=2)
    assert [row["length"] for row in rows] == [4, 8]
    assert all(x > 0 for row in rows for y in row["seconds"].values() for x in y.values())
    assert set(rows[0]["seconds"]["b"]) == {"prefill", "decoding"}


def test_spearman_by_hand():
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    x, y = np.array([1.0, 2.0, 2.0, 9.0]), np.array([0.1, 0.2, 0.3, 0.4])
    assert spearman(x, y) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert spearman(y, -y) == pytest.approx(-1)


def test_references_are_split_into_words_that_the_decoder_writes():
    """Pieces of the Chinese model ("▁we", "a", "ther") cost fine-tuned models six BLEU."""
    known = ["▁the", "▁we", "a", "ther", "▁weather", "▁", "w", "as", "▁was", "s", "d", "▁showcase"]
    assert fewest_pieces("▁the▁weather▁was", known, 9) == ["▁the", "▁weather", "▁was"]
    assert fewest_pieces("▁showcased", known, 9) == ["▁showcase", "d"]
    assert fewest_pieces("▁wasé", known, 9) == ["▁was", "é"]
    assert fewest_pieces("", known, 9) == []


def test_divergence_is_zero_for_equals_and_counts_what_is_masked_in():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1))
    other = logits.clone()
    other[0, 0, 0] += 3
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert divergence(logits, logits, mask).item() == pytest.approx(0, abs=1e-6)
    expected = torch.nn.functional.kl_div(
        logits[0, 0].log_softmax(-1), other[0, 0].log_softmax(-1), log_target=True, reduction="sum"
    )
    assert divergence(logits, other, mask).item() == pytest.approx(expected.item() / 6, rel=1e-4)
    mask[0, 0] = False
    assert divergence(logits, other, mask).item() == pytest.approx(0, abs=1e-6)


def test_marian_model_comes_out_of_ctranslate2_as_it_went_in(tmp_path):
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=12,
        d_model=8,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=11,
        eos_token_id=0,
        decoder_start_token_id=11,
    )
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
        model.model.shared.weight[11] = 0
        model.final_logits_bias.normal_()
        model.final_logits_bias[:, 11] = 0
    archive = tmp_path / "model.argosmodel"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("zh_en/model/model.bin", _ctranslate2(model))
        vocabulary = ["</s>", "<unk>", *(f"x{i}" for i in range(9))]
        files.writestr("zh_en/model/shared_vocabulary.json", json.dumps(vocabulary))
        files.writestr("zh_en/sentencepiece.model", b"pieces")
    found, words, pieces = read_marian(archive)
    assert (words, pieces) == (vocabulary, b"pieces")
    inputs = {"input_ids": torch.tensor([[3, 4, 5, 0]]), "labels": torch.tensor([[6, 7, 0]])}
    with torch.no_grad():
        expected, logits = model(**inputs).logits, found(**inputs).logits
    # Weights of int8 are within half a step of a 127th of the largest of their row.
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()


def _ctranslate2(model) -> bytes:
    """Write a model as CTranslate2 does: int8 with a scale for each row."""
    state = {key: x.detach().numpy() for key, x in model.state_dict().items()}
    arrays = {"encoder/num_heads": np.array(2, np.int8)}

    def linear(to, *names):
        weight = np.concatenate([state[f"{x}.weight"] for x in names])
        arrays[f"{to}/bias"] = np.concatenate([state[f"{x}.bias"] for x in names])
        quantized(to, weight)

    def quantized(to, weight):
        scale = 127 / np.abs(weight).max(-1).clip(1e-6)
        arrays[f"{to}/weight"] = np.rint(weight * scale[:, None]).astype(np.int8)
        arrays[f"{to}/weight_scale"] = scale.astype(np.float32)

    def norm(to, name):
        arrays[f"{to}/gamma"], arrays[f"{to}/beta"] = state[f"{name}.weight"], state[f"{name}.bias"]

    quantized("decoder/embeddings", state["model.shared.weight"][:-1])
    arrays["decoder/projection/bias"] = state["final_logits_bias"][0, :-1]
    positions = state["model.decoder.embed_positions.weight"]
    arrays["decoder/position_encodings/encodings"] = positions
    for side, count in (("encoder", 2), ("decoder", 1)):
        for i in range(count):
            to, name = f"{side}/layer_{i}", f"model.{side}.layers.{i}"
            own = [f"{name}.self_attn.{x}_proj" for x in ("q", "k", "v")]
            linear(f"{to}/self_attention/linear_0", *own)
            linear(f"{to}/self_attention/linear_1", f"{name}.self_attn.out_proj")
            norm(f"{to}/self_attention/layer_norm", f"{name}.self_attn_layer_norm")
            linear(f"{to}/ffn/linear_0", f"{name}.fc1")
            linear(f"{to}/ffn/linear_1", f"{name}.fc2")
            norm(f"{to}/ffn/layer_norm", f"{name}.final_layer_norm")
            if side == "decoder":
                other = f"{name}.encoder_attn"
                linear(f"{to}/attention/linear_0", f"{other}.q_proj")
                linear(f"{to}/attention/linear_1", f"{other}.k_proj", f"{other}.v_proj")
                linear(f"{to}/attention/linear_2", f"{other}.out_proj")
                norm(f"{to}/attention/layer_norm", f"{other}_layer_norm")
    parts = [struct.pack("<I", 6), _text("TransformerSpec"), struct.pack("<II", 7, len(arrays))]
    kinds = {"float32": 0, "int8": 1}
    for name, array in arrays.items():
        shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        content = np.ascontiguousarray(array).tobytes()
        head = struct.pack("<BI", kinds[array.dtype.name], len(content))
        parts += [_text(name), shape, head, content]
    return b"".join(parts)


def _text(text: str) -> bytes:
    content = text.encode() + b"\0"
    return struct.pack("<H", len(content)) + content
