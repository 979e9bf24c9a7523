"""Names of version 0.1.0 that have moved."""

import importlib

import pytest

MOVED = {
    "adasparse.analysis:Header": "adasparse.analysis:ModelHeader",
    "adasparse.analysis:Meter": "adasparse.analysis:MeasureCollector",
    "adasparse.analysis.draw:alpha_histogram": "adasparse.analysis.figures:alpha_histogram",
    "adasparse.analysis.measure:density": "adasparse.analysis.measures:density",
    "adasparse.longcontext:Ladder": "adasparse.longcontext:LengthScores",
    "adasparse.translation.demo:run_demo": "adasparse.demo:run_demo",
    "adasparse.translation.grammar:generate": "adasparse.demo.grammar:generate",
}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_still_leads_to_the_object_and_warns(old):
    module, name = old.split(":")
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{name} has moved"):
        found = getattr(importlib.import_module(module), name)
    new, name = MOVED[old].split(":")
    assert found is getattr(importlib.import_module(new), name)


def test_old_modules_are_attributes_of_their_package():
    from adasparse import analysis

    with pytest.warns(DeprecationWarning, match="use adasparse.analysis.figures.save_figure"):
        assert analysis.draw.save_figure is analysis.figures.save_figure


def test_other_names_are_missing_as_ever():
    module = importlib.import_module("adasparse.translation.demo")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing
