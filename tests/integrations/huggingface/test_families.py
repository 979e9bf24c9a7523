"""Families of transformers: right, or refused by name, or not tried; never wrong."""

import pytest
import transformers

from support.families import classes, families, judge

#: Sixty of many kinds: text, images, sound, several parts, code of their own.
SAMPLE = [
    "afmoe",
    "aimv2",
    "albert",
    "altclip",
    "apertus",
    "arcee",
    "aria_text",
    "axk2",
    "bart",
    "beit",
    "bert",
    "bert-generation",
    "bigbird_pegasus",
    "biogpt",
    "bitnet",
    "blenderbot",
    "blip",
    "bloom",
    "camembert",
    "canine",
    "clip",
    "clipseg",
    "codegen",
    "cohere",
    "cohere2",
    "ctrl",
    "cwm",
    "data2vec-text",
    "deberta",
    "deberta-v2",
    "deepseek_v3",
    "deit",
    "distilbert",
    "doge",
    "dpr",
    "dpt",
    "electra",
    "ernie",
    "ernie4_5",
    "eurobert",
    "exaone4",
    "falcon",
    "flaubert",
    "flava",
    "flex_olmo",
    "glm4",
    "fuyu",
    "gemma",
    "gemma2",
    "gpt2",
    "gpt_neox",
    "gpt_oss",
    "granite_swa",
    "helium",
    "mpnet",
    "opt",
    "phi",
    "qwen3",
    "roberta",
    "t5",
]


@pytest.fixture(autouse=True)
def _quiet():
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(verbosity)


@pytest.mark.parametrize("family", SAMPLE)
def test_a_sample_of_families_works(family):
    found = judge(family, classes(family)[0])
    assert found.outcome in ("works", "given inputs", "partly"), found


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "qwen2_audio", "bart"])
def test_inputs_reach_what_text_does_not(family):
    name = "BartForCausalLM" if family == "bart" else classes(family)[0]
    assert judge(family, name).outcome == "given inputs"


def test_the_sample_is_of_sixty():
    assert len(set(SAMPLE)) == 60
    assert set(SAMPLE) <= set(families())


@pytest.mark.slow
@pytest.mark.parametrize("family", families())
def test_no_class_of_any_family_is_wrong(family):
    found = {name: judge(family, name) for name in classes(family)}
    assert not {name: x for name, x in found.items() if x.outcome in ("wrong", "error")}
