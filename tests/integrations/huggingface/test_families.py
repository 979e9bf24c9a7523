"""Families of transformers: right, or refused by name, or not tried; never wrong."""

import pytest
import transformers

from support.families import classes, families, judge

#: Of many kinds: text, images, sound, several parts, code of their own.
SAMPLE = [
    "afmoe",
    "aimv2",
    "albert",
    "aria_text",
    "bigbird_pegasus",
    "bloom",
    "canine",
    "clipseg",
    "codegen",
    "cohere2",
    "ctrl",
    "deberta-v2",
    "deepseek_v3",
    "doge",
    "dpt",
    "falcon",
    "flaubert",
    "flava",
    "fuyu",
    "gemma2",
    "gpt_neox",
    "gpt_oss",
    "mpnet",
    "t5",
]
#: More of them, which attend as one above or one of ``ARCHITECTURES`` does.
MORE = [
    "altclip",
    "apertus",
    "arcee",
    "axk2",
    "bart",
    "beit",
    "bert",
    "bert-generation",
    "biogpt",
    "bitnet",
    "blenderbot",
    "blip",
    "camembert",
    "clip",
    "cohere",
    "cwm",
    "data2vec-text",
    "deberta",
    "deit",
    "distilbert",
    "dpr",
    "electra",
    "ernie",
    "ernie4_5",
    "eurobert",
    "exaone4",
    "flex_olmo",
    "glm4",
    "gemma",
    "gpt2",
    "granite_swa",
    "helium",
    "opt",
    "phi",
    "qwen3",
    "roberta",
]


@pytest.fixture(autouse=True)
def _quiet():
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(verbosity)


@pytest.mark.parametrize(
    "family", [*SAMPLE, *(pytest.param(x, marks=pytest.mark.slow) for x in MORE)]
)
def test_a_sample_of_families_works(family):
    found = judge(family, classes(family)[0])
    assert found.outcome in ("works", "given inputs", "partly"), found


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "qwen2_audio", "bart"])
def test_inputs_reach_what_text_does_not(family):
    name = "BartForCausalLM" if family == "bart" else classes(family)[0]
    assert judge(family, name).outcome == "given inputs"


def test_the_sample_is_of_sixty():
    assert len({*SAMPLE, *MORE}) == 60
    assert {*SAMPLE, *MORE} <= set(families())


@pytest.mark.slow
@pytest.mark.parametrize("family", families())
def test_no_class_of_any_family_is_wrong(family):
    found = {name: judge(family, name) for name in classes(family)}
    assert not {name: x for name, x in found.items() if x.outcome in ("wrong", "error")}
