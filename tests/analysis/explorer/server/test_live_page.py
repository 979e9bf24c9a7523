"""The live page in a real browser, with a model behind it."""

import threading

import pytest
from selenium.webdriver.common.keys import Keys

from adasparse.analysis.explorer.server.app import create_app
from adasparse.analysis.explorer.server.live_model import Limits, LiveModel
from adasparse.analysis.explorer.server.serve import address_of, listen, new_server
from support import sample_models
from support.browser import Page, require

TEXT = "Wo ist der alte Hund?"
LIMITS = Limits(characters=200, new_tokens=8)


def serve(live, **options):
    """Serve a model in a thread; yields the address."""
    require()
    listener = listen("127.0.0.1", 0)
    server = new_server(create_app(live, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield address_of(listener)
    server.should_exit = True
    thread.join(10)
    listener.close()
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def live():
    # The translation of this one changes when all its encoder heads become sparser.
    model = sample_models.sparse("marian", seed=2)
    return LiveModel(model, sample_models.tokenizer(), name="marian", limits=LIMITS)


@pytest.fixture(scope="module")
def address(live):
    yield from serve(live, first_text=TEXT)


@pytest.fixture
def page(address):
    page = Page(address)
    page.wait(lambda: page.all("#live-output .text"))
    yield page
    assert page.complaints() == []
    assert {url.partition("#")[0] for url in page.requests()} <= {f"{address}api/run"}


def settle(page):
    """Wait until the answer to the last change is shown."""
    page.wait(lambda: page.text("#live-status").endswith(" s") or page.text("#live-error"))


def density(page):
    return page.text("#panels .panel:nth-child(1) dd[data-key=density]")


def change_all_heads(page, alpha):
    """Move the slider of every head of the chosen kind."""
    page.run(
        "const buttons = [...document.querySelectorAll('#ranked button')];"
        "for (const place of buttons.map((x) => x.dataset.head)) {"
        "  document.querySelector(`#ranked [data-head='${place}']`).click();"
        "  const slider = document.getElementById('alpha-slider');"
        "  slider.value = arguments[0];"
        "  slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        alpha,
    )


def test_the_first_sentence_is_there_at_once(page, live):
    found = live.run(TEXT)
    assert page.text("#live-output .text bdi") == (found["output"]["text"] or "∅")
    tokens = found["payload"]["runs"][0]["sentences"][0]["source"]
    assert page.texts(".strip.rows .token") == tokens


def test_a_page_without_a_given_sentence_opens_with_an_example(tmp_path):
    folder, data = tmp_path / "run", tmp_path / "data"
    sample_models.sparse("marian", seed=2).float().save_pretrained(folder)
    sample_models.tokenizer().save_pretrained(folder)
    data.mkdir()
    (data / "dev.source.txt").write_text(f"Ja.\n{TEXT}\n", encoding="utf-8")
    (folder / "recipe.yaml").write_text(f"data: {data}\n", encoding="utf-8")
    live = LiveModel.load(folder, limits=LIMITS)
    for address in serve(live):
        page = Page(address)
        page.wait(lambda page=page: page.all("#live-output .text"))
        assert page.one("#live-text").get_attribute("value") == TEXT
        assert page.text("#sentence-text bdi") == TEXT
        assert page.all("#panels .panel") and page.text("#live-error") == ""
        assert page.complaints() == []


def test_the_corner_of_the_grid_needs_no_rare_glyph(page):
    assert page.text("#grid th.axis") == "layer / head"


def test_a_typed_sentence_is_translated(page, live):
    page.one("#live-text").clear()
    page.one("#live-text").send_keys("Ein Mann liest.", Keys.ENTER)
    page.wait(lambda: "Ein Mann liest." in page.text("#sentence-text"))
    assert page.text("#live-output .text bdi") == live.run("Ein Mann liest.")["output"]["text"]
    page.one("#live-target").send_keys("A man")
    page.click("#live-run")
    page.wait(lambda: "A man" in page.text("#sentence-text"))


def test_a_slider_changes_attention_and_translation(page, live):
    before, dense = page.text("#live-output .text"), density(page)
    page.slide("#alpha-slider", 4)
    page.wait(lambda: density(page) != dense)
    assert page.text("#panels dd[data-key=alpha]") == "4.00"
    assert page.all("#grid .cell[data-mark=changed]")
    assert "→ 4.00" in page.text("#changes")
    change_all_heads(page, 4)
    page.wait(lambda: page.text("#live-output .text") != before)
    settle(page)
    assert page.text("#live-output .before") == before
    page.choose("#compare", "1")
    assert page.texts("#panels .run-name") == ["marian, changed", "marian"]
    page.click("#reset-all")
    page.wait(lambda: page.text("#live-output .text") == before)
    assert page.all("#changes li") == [] and page.all("#grid .cell[data-mark]") == []


def test_a_head_is_switched_off_and_on_again(page, live):
    page.click("#kind [data-value=context]")
    page.click("#view [data-value=lines]")
    page.click("#head-off")
    settle(page)
    page.wait(lambda: page.all("#run option[value='1']"))
    assert page.one("#grid .cell[data-mark=off]").get_attribute("aria-label").endswith(": off")
    assert page.text("#changes li").startswith("context 1.1: off")
    page.click("#reset-head")
    page.wait(lambda: not page.all("#run option[value='1']"))
    assert not page.one("#head-off").is_selected()


def test_an_error_is_shown_and_goes_away(page):
    page.run("document.getElementById('live-text').value = 'x'.repeat(500)")
    page.click("#live-run")
    page.wait(lambda: page.text("#live-error"))
    assert page.text("#live-error") == "text may have 200 characters; got 500."
    page.run("document.getElementById('live-text').value = 'Ja.'")
    page.click("#live-run")
    page.wait(lambda: "Ja." in page.text("#sentence-text"))
    assert page.text("#live-error") == ""
    assert [x for x in page.complaints() if "422" not in x] == []


def test_hostile_text_is_text(page):
    hostile = "<img src=x onerror=alert(1)></script><script>alert(2)</script> \"' \u202e مرحبا 👩‍👧"
    page.run("document.getElementById('live-text').value = arguments[0]", hostile)
    page.click("#live-run")
    page.wait(lambda: "onerror" in page.text("#sentence-text"))
    assert page.text("#sentence-text bdi") == hostile
    assert page.all("img, main script") == []


def test_a_narrow_screen_never_scrolls_sideways(address, page):
    page = Page(address, width=390)
    page.wait(lambda: page.all("#live-output .text"))
    page.slide("#alpha-slider", 2)
    settle(page)
    assert not page.scrolls_sideways()


@pytest.fixture
def decoder():
    return LiveModel(
        sample_models.sparse("llama"), sample_models.tokenizer(), name="llama", limits=LIMITS
    )


@pytest.fixture
def decoder_address(decoder):
    yield from serve(decoder, first_text="Der alte")


def test_a_decoder_shows_its_predictions(decoder, decoder_address):
    page = Page(decoder_address)
    page.wait(lambda: page.all(".predictions li"))
    expected = decoder.run("Der alte")["output"]["tokens"]
    assert page.texts(".predictions .token") == [x["token"] for x in expected]
    assert not page.one("#live-target-field").is_displayed()
    assert page.complaints() == []
