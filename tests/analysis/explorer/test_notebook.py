"""The explorer inside a notebook."""

import html
import re

import pytest

from adasparse.analysis.explorer.notebook import show
from adasparse.analysis.recording.recorder import record
from support import page_sample, sample_models
from support.browser import Page


@pytest.fixture(scope="module")
def recording():
    model = sample_models.sparse("bert")
    return record(model, sample_models.tokenizer(), sample_models.SOURCE[:2], name="bert")


def test_a_frame_holds_the_whole_page(recording):
    shown = show(recording, height=640)
    frame = shown._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and "height: 640px" in frame
    assert 'sandbox="allow-scripts"' in frame
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', frame).group(1))
    assert page == shown.page
    assert 'data-mode="notebook"' in page and "Measures of every head" not in page
    assert len(repr(shown)) < 80


def test_it_works_in_a_notebook(tmp_path, recording):
    notebook = tmp_path / "notebook.html"
    frames = show(page_sample.payload())._repr_html_(), show([recording])._repr_html_()
    notebook.write_text(f"<meta charset=utf-8><div id=grid><p class=cell></div>{''.join(frames)}")
    page = Page(notebook.as_uri())
    for frame, head in zip(page.all("iframe"), ("adaptive", "bert"), strict=True):
        page.driver.switch_to.frame(frame)
        page.wait(lambda: page.all("#grid button.cell"))
        page.click("#grid tbody tr:nth-child(2) td:nth-of-type(3) .cell")
        assert page.text("#panels h3") == f"Encoder layer 2, head 3{head}"
        page.click("#theme")
        page.driver.switch_to.default_content()
    assert page.complaints() == []


def test_several_recordings_are_compared(recording):
    other = record(
        sample_models.dense("bert"),
        sample_models.tokenizer(),
        sample_models.SOURCE[:2],
        name="soft",
    )
    assert "bert and soft" in show([recording, other]).page
    fewer = record(
        sample_models.dense("bert"), sample_models.tokenizer(), sample_models.SOURCE[:1], name="few"
    )
    with pytest.raises(ValueError, match=r"same sentences; got \[1, 2\]"):
        show([recording, fewer])


@pytest.mark.parametrize(("what", "named"), [([], "an empty sequence"), ([3], "int"), ("x", "str")])
def test_other_things_are_refused(what, named):
    with pytest.raises(TypeError, match=f"a payload, a recording or .* got {named}"):
        show(what)


def test_heights_are_pixels(recording):
    with pytest.raises(ValueError, match="at least 1; got 0"):
        show(recording, height=0)
