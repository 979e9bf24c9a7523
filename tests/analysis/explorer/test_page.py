"""The report as a file: what is in it and what can never be."""

import json
import re

import pytest

from adasparse.analysis.explorer.page import ReportFigure, ReportTable, render_page, write_report
from support import page_sample

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def payload():
    return page_sample.payload()


def embedded(page):
    found = re.findall(r'<script type="application/json" id="payload">(.*?)</script>', page, re.S)
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("mode", ["report", "notebook", "live"])
def test_the_payload_comes_back_and_cannot_end_its_element(payload, mode):
    text = embedded(render_page(payload, mode=mode))
    assert json.loads(text) == payload
    assert not re.search("[<>&\u2028\u2029]", text)


def test_names_are_escaped_where_they_are_text(payload):
    page = render_page(payload, tables=[ReportTable(title="<u>", columns=["a"], rows=[["<i>"]])])
    body = page.partition("<main>")[2].partition("</main>")[0]
    assert "&lt;b&gt;soft&amp;max&lt;/b&gt;" in body
    assert "<b>soft" not in body and "<i>" not in body and "<u>" not in body


def test_nothing_is_asked_of_the_network(payload):
    page = render_page(payload)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert "default-src &#39;none&#39;" in policy and "unsafe" not in policy
    assert "connect-src &#39;none&#39;" in policy
    without_data = page.replace(embedded(page), "")
    assert not re.search(r"""(src|href|action)=["']?(https?:)?//|@import|url\(""", without_data)
    assert "innerHTML" not in page and "eval(" not in page


def test_the_file_is_replaced_when_it_is_complete(payload, tmp_path):
    path = tmp_path / "new" / "index.html"
    assert write_report(payload, path) == path
    before = path.read_bytes()
    broken = {**payload, "measures": [{"value": float("nan")}]}
    with pytest.raises(ValueError, match="JSON"):
        write_report(broken, path)
    assert path.read_bytes() == before
    assert [x.name for x in path.parent.iterdir()] == ["index.html"]


def test_half_of_a_surrogate_pair_does_no_harm(payload, tmp_path):
    hostile = {**payload, "runs": [page_sample.run("x", "softmax", seed=0, hostile=["\ud800"])]}
    path = write_report(hostile, tmp_path / "index.html")
    assert (
        json.loads(embedded(path.read_text()))["runs"][0]["sentences"][1]["source"][0] == "\ud800"
    )


def test_figures_are_inside(payload):
    figures = [
        ReportFigure(title="Alpha", caption="Read it so.", image=PNG, links={"CSV": "a.csv"}),
        ReportFigure(title="Density", image=b"<?xml version='1.0'?><svg/>"),
    ]
    page = render_page(payload, figures=figures)
    assert 'src="data:image/png;base64,iVBORw0KGgo="' in page
    assert 'src="data:image/svg+xml;base64,' in page
    assert '<a href="a.csv">CSV</a>' in page and "Read it so." in page


def test_other_images_are_refused():
    with pytest.raises(ValueError, match="SVG or PNG file; 'Alpha' begins with b'GIF89a'"):
        ReportFigure(title="Alpha", image=b"GIF89a").data_uri()


def test_other_versions_are_refused(payload):
    with pytest.raises(ValueError, match="payloads of version 1; got 2"):
        render_page({**payload, "version": 2})
