"""The report in a real browser."""

import base64

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from adasparse.analysis.explorer.page import ReportFigure, ReportTable, write_report
from support import page_sample
from support.browser import Page

SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 4"><script>alert(3)</script>'
    b'<rect width="9" height="4"/></svg>'
)
BLANK = (255, 255, 255, 255)
OTHER = "<b>soft&max</b>"


@pytest.fixture(scope="module")
def payload():
    return page_sample.payload()


@pytest.fixture(scope="module")
def address(payload, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "index.html"
    write_report(
        payload,
        path,
        figures=[
            ReportFigure(
                title="Alpha <i>", caption="Over time.", image=SVG, links={"CSV": "figures/a.csv"}
            )
        ],
        tables=[ReportTable(title="Roles", columns=["run"], rows=[["</table><script>x"]])],
    )
    return path.as_uri()


@pytest.fixture
def page(address):
    page = Page(address)
    page.run("localStorage.clear()")
    yield page
    page.check_quiet()


def weight(payload, *, run=0, sentence=0, kind="encoder", layer=0, head=0):
    """The dense weights of a head, decoded anew."""
    entry = payload["runs"][run]["sentences"][sentence]
    packed = entry["attention"][kind][layer][head]
    arrays = {
        name: np.frombuffer(base64.b64decode(packed[name]), dtype)
        for name, dtype in (("crow", "<u4"), ("col", "<u2"), ("value", "<u2"))
    }
    queries, keys = (len(entry[side]) for side in page_sample.SIDES[kind])
    dense = np.zeros((queries, keys))
    rows = np.repeat(np.arange(queries), np.diff(arrays["crow"].astype(int)))
    dense[rows, arrays["col"]] = arrays["value"] / 65535
    return dense


def cell_size(page):
    return page.run(
        "const rule = document.querySelectorAll('.strip.rows .label');"
        "const y = (x) => x.getBoundingClientRect().y; return y(rule[1]) - y(rule[0])"
    )


def hover_cell(page, row, column, panel=1):
    page.frame()
    size = cell_size(page)
    where = f"#panels .panel:nth-child({panel}) .scroll"
    page.hover(where, (column + 0.5) * size, (row + 0.5) * size)
    page.frame()


def test_everything_is_there(page, payload):
    assert page.text("h1") == payload["title"]
    assert "97.1% of its weight" in page.text("#summary")
    assert len(page.all("#grid .cell")) == 3 * 8
    assert len(page.all("#table tbody tr")) == 2 * 3 * 3 * 8
    assert page.run("return document.querySelector('figure img').naturalWidth > 0")
    assert page.one("figcaption a").get_attribute("href").endswith("figures/a.csv")


def test_a_click_selects_a_head(page):
    page.click("#grid tbody tr:nth-child(3) td:nth-of-type(5) .cell")
    assert page.text("#panels h3").startswith("Encoder layer 3, head 5")
    assert page.fragment()["layer"] == "3" and page.fragment()["head"] == "5"
    assert len(page.all("#grid [aria-current]")) == 1


def test_hovering_tells_the_weight(page, payload):
    page.click("#grid tbody tr:nth-child(2) td:nth-of-type(6) .cell")
    dense = weight(payload, layer=1, head=5)
    tokens = payload["runs"][0]["sentences"][0]["source"]
    row, column = divmod(int(dense.argmax()), dense.shape[1])
    hover_cell(page, row, column)
    assert page.text(".readout output") == f"{dense[row, column]:.3f}"
    assert page.texts(".readout .token") == [tokens[row], tokens[column]]
    row, column = divmod(int((dense == 0).argmax()), dense.shape[1])
    hover_cell(page, row, column)
    assert page.text(".readout output") == "exactly 0"


def test_zeros_are_blank_and_the_smallest_weights_are_not(page, payload):
    page.click("#grid tbody tr:nth-child(1) td:nth-of-type(4) .cell")
    dense = weight(payload, layer=0, head=3)
    page.frame()
    size = cell_size(page)
    cells = [(row, column) for row in range(dense.shape[0]) for column in range(dense.shape[1])]
    middles = [((column + 0.5) * size, (row + 0.5) * size) for row, column in cells]
    for (row, column), color in zip(cells, page.pixels(".heat canvas", middles), strict=True):
        assert (color == BLANK) == (dense[row, column] == 0)
        assert color == BLANK or min(color[:3]) < 230


@pytest.mark.parametrize(("order", "sign"), [("descending", -1), ("ascending", 1)])
def test_heads_are_ranked_by_any_measure(page, payload, order, sign):
    page.choose("#measure", "density")
    if order == "ascending":
        page.click("#order")
    values = payload["runs"][0]["groups"][0]["values"]["density"]
    heads = [(layer, head) for layer in range(3) for head in range(8)]
    heads.sort(key=lambda x: sign * values[x[0]][x[1]])
    shown = page.run(
        "return [...document.querySelectorAll('#ranked button')].map((x) => x.dataset.head)"
    )
    assert shown == [f"{layer + 1}.{head + 1}" for layer, head in heads]
    page.click("#ranked li:nth-child(2) button")
    assert page.fragment()["head"] == str(heads[1][1] + 1)


def test_the_table_sorts_by_every_column(page, payload):
    page.choose("#table-run", "1")
    page.choose("#table-kind", "context")
    values = payload["runs"][1]["groups"][2]["values"]["entropy"]
    for sign in (-1, 1):
        page.click("#table th button[data-key=entropy]")
        expected = sorted((x for row in values for x in row), key=lambda x: sign * x)
        assert page.texts("#table tbody td:nth-child(4)") == [f"{x:.3f}" for x in expected]
    assert page.one("#table th[aria-sort]").get_attribute("aria-sort") == "ascending"
    page.click("#table th button[data-key=question]")
    assert set(page.texts("#table tbody td:nth-child(6)")) == {"–"}
    page.click("#table-intervals")
    assert " to " in page.text("#table tbody td:nth-child(3) small")
    page.click("#table tbody tr:nth-child(1) a")
    page.wait(lambda: page.fragment().get("run") == OTHER)
    assert page.text("#panels h3").startswith("Context layer")


def test_two_runs_are_compared_cell_by_cell(page, payload):
    page.choose("#compare", "1")
    panels = page.all("#panels .panel")
    assert all(panel.is_displayed() for panel in panels)
    assert page.texts("#panels .run-name") == ["adaptive", OTHER]
    hover_cell(page, 2, 3)
    expected = [weight(payload, run=run)[2, 3] for run in (0, 1)]
    words = [f"{x:.3f}" if x else "exactly 0" for x in expected]
    assert page.texts(".readout output") == words
    page.choose("#compare", "")
    assert not panels[1].is_displayed()


def test_lines_tell_the_weights_of_a_token(page, payload):
    page.click("#kind [data-value=context]")
    page.click("#view [data-value=lines]")
    page.click("#grid tbody tr:nth-child(1) td:nth-of-type(3) .cell")
    page.frame()
    page.hover(".lines .scroll", 30, 24 * 4 + 12)
    page.frame()
    row = weight(payload, kind="context", head=2)[4]
    assert page.text(".readout output") == f"{(row > 0).sum()} of {len(row)}"
    assert page.texts(".side.keys .number") == [f"{x:.3f}" for x in row[row > 0]]
    assert page.pixels(".lines canvas", [(1, 24 * 4 + 12), (1, 24 * 4)])[0][3] > 0


def test_arrows_and_letters_move(page):
    page.click("#explorer-title")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert page.text("#panels h3").startswith("Encoder layer 2, head 3")
    page.press(Keys.ARROW_LEFT, Keys.ARROW_UP, "j", "v", "a", "c")
    state = page.fragment()
    assert (state["layer"], state["head"], state["sentence"]) == ("1", "2", "1")
    assert (state["view"], state["kind"], state["compare"]) == ("lines", "decoder", OTHER)
    page.press("k", "?")
    assert page.fragment()["sentence"] == "0"
    assert page.one("#help").is_displayed()
    page.press(Keys.ESCAPE)
    assert not page.one("#help").is_displayed()


def test_the_grid_keeps_the_focus_and_shows_it(page):
    page.run("document.querySelector('#grid [aria-current]').focus()")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    focused = "return document.activeElement.getAttribute('aria-label')"
    assert page.run(focused).startswith("encoder layer 2, head 2: α")
    style = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.run(style) == "solid"


def test_a_choice_keeps_the_focus(page):
    page.run("document.querySelector('#kind [data-value=decoder]').focus()")
    page.press(Keys.ENTER)
    assert page.fragment()["kind"] == "decoder"
    assert page.run("return document.activeElement.dataset.value") == "decoder"
    page.run("document.querySelector('#ranked li:nth-child(4) button').focus()")
    place = page.run("return document.activeElement.dataset.head")
    page.press(Keys.ENTER)
    assert page.run("return document.activeElement.dataset.head") == place


def test_arrows_walk_through_a_picture(page, payload):
    page.run("document.querySelector('.heat .scroll').focus()")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    tokens = payload["runs"][0]["sentences"][0]["source"]
    assert page.texts(".readout .token") == [tokens[1], tokens[1]]


def test_the_address_restores_everything(address, page):
    fragment = (
        "#run=%3Cb%3Esoft%26max%3C%2Fb%3E&compare=adaptive&sentence=2&kind=context&layer=3&head=7"
        "&view=lines&measure=entropy&order=ascending"
    )
    linked = Page(address + fragment)
    assert linked.text("#panels h3").startswith("Context layer 3, head 7")
    assert linked.one("#sentence").get_property("value") == "2"
    assert linked.one("#measure").get_property("value") == "entropy"
    assert linked.texts("#panels .run-name") == [OTHER, "adaptive"]
    assert linked.all("#panels .panel:nth-child(2) .lines")
    assert linked.one("#permalink").get_attribute("href") == address + fragment.replace("%20", "+")
    linked.run("location.hash = 'run=adaptive&kind=decoder&layer=99&head=-4&sentence=x&view=?'")
    linked.wait(lambda: linked.text("#panels h3").startswith("Decoder layer 3, head 1"))


def test_no_token_is_more_than_text(page):
    page.choose("#sentence", "1")
    for view in ("heat", "lines"):
        page.click(f"#view [data-value={view}]")
        page.frame()
        shown = set(page.texts(".plot .token"))
        assert {"</script>", "مرحبا", "👩‍👩‍👧‍👦", "⏎", "∅", "${1+1}{{7*7}}"} <= shown
        assert any(x.startswith("<script>alert") for x in shown)
        assert max(map(len, shown)) <= 20
        directions = (
            "return [...document.querySelectorAll('.plot bdi')].every((x) => x.dir === 'auto')"
        )
        assert page.run(directions)
    assert page.all("main script, main img[src='x'], #panels b:not(.roles b)") == []
    assert page.run("return document.querySelectorAll('script').length") == 2
    assert page.run("return document.title") == "Heads of two runs"


def test_a_long_token_is_shown_in_full_on_demand(page):
    page.choose("#sentence", "1")
    page.frame()
    long = next(x for x in page.all(".strip.rows .label") if x.text.startswith("xxx"))
    page.run("arguments[0].click()", long)
    assert page.one("#full-text").is_displayed()
    assert page.text("#full-text bdi") == "x" * 10_000
    assert "10,000 characters" in page.text("#full-text")
    page.press(Keys.ESCAPE)


@pytest.mark.parametrize("view", ["heat", "lines"])
def test_long_sentences_scroll_in_their_own_box(address, page, view):
    for width in (390, 1280):
        page = Page(f"{address}#sentence=2&view={view}&kind=context", width=width)
        page.frame()
        assert not page.scrolls_sideways()
        box = f"document.querySelector('.{view} .scroll')"
        assert page.run(f"return {box}.scrollHeight > {box}.clientHeight")
        if view == "heat":
            assert page.run(f"return {box}.scrollWidth > {box}.clientWidth")


@pytest.mark.parametrize("view", ["heat", "lines"])
def test_thousands_of_tokens_are_drawn_as_they_come_into_sight(tmp_path, view):
    path = write_report(page_sample.long_payload(), tmp_path / "index.html")
    page = Page(f"{path.as_uri()}#view={view}")
    page.run(f"document.querySelector('.{view} .scroll').scrollTop = 1e9")
    page.frame()
    assert "w4095" in page.texts(".plot .token")
    assert len(page.all(".plot .token")) < 200
    assert (
        page.run(
            "return Math.max(...[...document.querySelectorAll('canvas')].map((x) => x.height))"
        )
        < 2000
    )
    if view == "heat":
        size = cell_size(page)
        page.hover(".heat .scroll", size / 2, 40)
        page.frame()
        assert page.text(".readout output") in ("small or 0, not kept", "0.059")
        page.click("#zoom-out")
        page.frame()
        assert cell_size(page) < size
    page.check_quiet()


def test_a_narrow_screen_never_scrolls_sideways(address, page):
    page = Page(f"{address}#sentence=1&compare=%3Cb%3Esoft%26max%3C%2Fb%3E", width=390)
    page.click("#table-intervals")
    assert not page.scrolls_sideways()
    page.click("#help-button")
    assert not page.scrolls_sideways()


def test_dark_and_light_by_system_and_by_hand(address, page):
    background = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(background)
    page.click("#theme")
    by_hand = page.run(background)
    assert by_hand != light
    assert page.one("#theme").get_attribute("aria-pressed") == "true"
    page.run("localStorage.clear()")
    dark = Page(address, dark=True)
    assert dark.run(background) == by_hand
    assert BLANK not in dark.pixels(".heat canvas", [(1, 1), (9, 9)])
    dark.click("#theme")
    assert dark.run(background) == light
    dark.run("localStorage.clear()")


def test_controls_have_names(page):
    unnamed = page.run(
        "return [...document.querySelectorAll('button, select, input, [role=img]')].filter((x) =>"
        "  !x.textContent.trim() && !x.labels?.length && !x.getAttribute('aria-label'))"
        ".map((x) => x.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
