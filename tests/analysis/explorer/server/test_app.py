"""The live application, asked without a browser."""

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from starlette.testclient import TestClient

from adasparse.analysis.explorer.server import app as server_app
from adasparse.analysis.explorer.server.app import create_app
from adasparse.analysis.explorer.server.live_model import Limits, LiveModel
from support import sample_models

TEXT = "Wo ist der alte Hund?"
MODULE = "model.decoder.layers.1.encoder_attn"
LIMITS = Limits(characters=400, tokens=40, new_tokens=10, changes=5, body_bytes=4000)


def live_model(name, build=sample_models.sparse, limits=LIMITS):
    return LiveModel(build(name), sample_models.tokenizer(), name=name, limits=limits)


def client_of(live, **options):
    return TestClient(create_app(live, **options), base_url="http://127.0.0.1:8765")


@pytest.fixture(scope="module")
def live():
    return live_model("marian")


@pytest.fixture(scope="module")
def client(live):
    with client_of(live) as client:
        yield client


def ask(client, text=TEXT, **body):
    return client.post("/api/run", json={"text": text, **body})


def answer(client, text=TEXT, **body):
    response = ask(client, text, **body)
    assert response.status_code == 200, response.text
    return response.json()


def run_of(answer):
    return answer["payload"]["runs"][0]


def test_a_sentence_is_translated_and_its_heads_are_shown(client, live):
    found = answer(client)
    run = run_of(found)
    sentence = run["sentences"][0]
    assert found["output"] == {"kind": "translation", "text": sentence["target_text"]}
    assert sentence["source_text"] == TEXT
    assert set(sentence["attention"]) == {"encoder", "decoder", "context"}
    assert 1 <= len(sentence["target"]) <= LIMITS.new_tokens
    again = live.run(TEXT)
    assert json.loads(json.dumps(again)) == found


def test_a_target_is_attended_to_in_place_of_the_translation(client):
    found = answer(client, target="The old dog.")
    assert run_of(found)["sentences"][0]["target_text"] == "The old dog."
    assert found["output"] == answer(client)["output"]


def test_changes_hold_for_one_request(client, live):
    parameters = {name: x.clone() for name, x in live.recorder.model.state_dict().items()}
    before = answer(client)
    changed = answer(client, alpha={MODULE: {"2": 3.5}}, off={MODULE: [0, 1, 3]})
    assert run_of(changed)["groups"][2]["values"]["alpha"][1][2] == 3.5
    assert (
        run_of(changed)["groups"][2]["values"]["density"]
        != (run_of(before)["groups"][2]["values"]["density"])
    )
    assert answer(client) == before
    for name, x in live.recorder.model.state_dict().items():
        assert x.equal(parameters[name]), name


def test_users_at_once_do_not_mix(client):
    bodies = [{"alpha": {MODULE: {str(i % 4): 1.0 + 0.5 * i}}} for i in range(3)]
    bodies += [{"off": {MODULE: [i]}} for i in range(2)] + [{}]
    alone = [answer(client, **body) for body in bodies]
    assert len({json.dumps(x) for x in alone}) == len(bodies)
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: answer(client, **body), bodies))
    assert together == alone


def test_a_softmax_model_starts_at_alpha_1_and_can_be_made_sparse():
    client = client_of(live_model("marian", sample_models.dense))
    before = run_of(answer(client))["groups"][0]["values"]
    assert {x for row in before["alpha"] for x in row} == {1.0}
    assert before["density"][0][0] == 1.0
    changed = answer(client, alpha={"model.encoder.layers.0.self_attn": {"0": 2.0}})
    assert run_of(changed)["groups"][0]["values"]["density"][0][0] < 0.9


def test_a_decoder_tells_the_next_tokens():
    live = live_model("llama")
    client = client_of(live)
    found = answer(client, "Der alte")
    tokens = found["output"]["tokens"]
    chances = [x["probability"] for x in tokens]
    assert len(chances) == 10 and sum(chances) < 1 and chances == sorted(chances, reverse=True)
    ids = live.recorder.encode("Der alte")[:-1]
    model = live.recorder.model
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([ids])).logits[0, -1].softmax(-1).max().item()
    assert chances[0] == pytest.approx(expected, rel=1e-5)
    changed = answer(client, "Der alte", off={"model.layers.1.self_attn": [0, 1, 2, 3]})
    assert changed["output"] != found["output"]
    assert ask(client, target="The old").status_code == 422


def test_an_encoder_shows_its_heads_alone():
    found = answer(client_of(live_model("bert")))
    assert found["output"] is None
    assert [group["kind"] for group in run_of(found)["groups"]] == ["encoder"]


def test_the_model_is_described(client):
    model = client.get("/api/model").json()
    assert model["kind"] == "translation"
    assert model["modules"][MODULE]["kind"] == "context" and model["modules"][MODULE]["layer"] == 1
    assert len(model["modules"][MODULE]["alpha"]) == 4
    assert model["limits"]["tokens"] == 40


def test_the_page_is_served_with_headers_that_forbid_everything_else(client):
    response = client.get("/")
    assert response.status_code == 200
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in response.headers
    assert '"sentences":[]' in response.text


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"text": ""}, "text must not be empty"),
        ({"text": " \n"}, "text must not be empty"),
        ({"text": "x" * 401}, "text may have 400 characters; got 401"),
        ({"text": "Hund " * 60}, "text must have 1 to 40 tokens; got"),
        ({"text": TEXT, "target": "dog " * 60}, "target must have 1 to 40 tokens"),
        ({"text": "a\ud800b"}, "valid Unicode"),
        ({}, "text: Field required"),
        ({"text": 5}, "text: Input should be a valid string"),
        ({"text": TEXT, "path": "/etc/passwd"}, "path: Extra inputs are not permitted"),
        ({"text": TEXT, "alpha": {MODULE: {"0": 0.99}}}, "greater than or equal to 1"),
        ({"text": TEXT, "alpha": {MODULE: {"0": 4.01}}}, "less than or equal to 4"),
        ({"text": TEXT, "alpha": {MODULE: {"0": float("nan")}}}, "finite number"),
        ({"text": TEXT, "alpha": {MODULE: {"x": 1.5}}}, "valid integer"),
        ({"text": TEXT, "alpha": {MODULE: {"-1": 1.5}}}, "greater than or equal to 0"),
        ({"text": TEXT, "alpha": {MODULE: {"4": 1.5}}}, f"heads 0 to 3 of {MODULE}; got 4"),
        ({"text": TEXT, "alpha": {"model": {"0": 1.5}}}, "alpha must name attention modules"),
        ({"text": TEXT, "off": {"__class__": [0]}}, "off must name attention modules"),
        ({"text": TEXT, "off": {MODULE: [9]}}, f"heads 0 to 3 of {MODULE}; got 9"),
        ({"text": TEXT, "off": {"a": [0, 1, 2], "b": [0, 1, 2]}}, "At most 5 heads"),
        ([], "valid dictionary"),
    ],
    ids=lambda x: json.dumps(x)[:40] if isinstance(x, dict) else None,
)
def test_mistakes_are_named(client, body, complaint):
    response = client.post(
        "/api/run", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert response.status_code == 422
    assert complaint in response.json()["error"]


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"content-type": "application/json"}, b"{", 422),
        ({"content-type": "application/json"}, b"\xff\xfe", 422),
        ({"content-type": "text/plain"}, b'{"text": "a"}', 415),
        ({}, b'{"text": "a"}', 415),
        ({"content-type": "application/json"}, b" " * 4001, 413),
        ({"content-type": "application/json", "origin": "http://evil.example"}, b"{}", 403),
        ({"content-type": "application/json", "origin": "null"}, b"{}", 403),
        ({"content-type": "application/json", "origin": "http://["}, b"{}", 400),
        ({"content-type": "application/json", "origin": "http://[::1"}, b"{}", 400),
        ({"content-type": "application/json", "sec-fetch-site": "cross-site"}, b"{}", 403),
        ({"content-type": "application/json", "sec-fetch-site": "same-site"}, b"{}", 403),
        ({"content-type": "application/json", "host": "evil.example:8765"}, b"{}", 421),
    ],
)
def test_requests_that_are_refused(client, headers, content, status):
    response = client.post("/api/run", content=content, headers=headers)
    assert response.status_code == status
    assert set(response.json()) == {"error"}
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_body_of_unknown_length_is_limited_too(client):
    chunks = (b" " * 1000 for _ in range(1000))
    response = client.post("/api/run", content=chunks, headers={"content-type": "application/json"})
    assert response.status_code == 413


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "LOCALHOST:8765", "[::1]:8765", "[::1]"]
)
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/api/model", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.:80"])
def test_other_names_are_not(client, live, host):
    assert client.get("/", headers={"host": host}).status_code == 421
    assert client_of(live, hosts=None).get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/api/run/../../app.py",
        "/page/template.html",
        "/openapi.json",
        "/docs",
    ],
)
def test_no_path_leads_to_a_file(client, path):
    response = client.get(path)
    assert response.status_code in (404, 405)
    assert set(response.json()) == {"error"}


def test_other_methods_are_refused(client):
    assert client.get("/api/run").status_code == 405
    assert client.put("/", content=b"x").status_code == 405


class Slow(LiveModel):
    """A model that takes as long as it is told."""

    def __init__(self, model):
        self.__dict__.update(model.__dict__)
        self.limits = Limits(waiting=1, wait_seconds=0.2)
        self.started, self.may_end = threading.Event(), threading.Event()

    def run(self, text, **options):
        self.started.set()
        assert self.may_end.wait(10)
        return {"payload": {}, "output": None}


def test_those_who_wait_too_long_are_told_so(live):
    slow = Slow(live)
    with client_of(slow) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, client)
        assert slow.started.wait(10)
        second = ask(client)
        slow.may_end.set()
        assert second.status_code == 503
        assert "busy" in second.json()["error"] and second.headers["retry-after"] == "2"
        assert first.result().status_code == 200
        assert ask(client).status_code == 200


def test_a_failure_tells_nothing_of_the_inside(live, caplog, monkeypatch):
    monkeypatch.setattr(server_app, "_LOG", logging.getLogger("server"))

    class Broken(Slow):
        def run(self, text, **options):
            raise RuntimeError("/secret/path\nand more")

    client = client_of(Broken(live))  # which raises what the server would print with a traceback
    response = ask(client)
    assert response.status_code == 500
    assert response.json() == {"error": "The model failed on this text (RuntimeError)."}
    told = [x for x in caplog.records if x.name == "server"]
    expected = "The model failed on a text: RuntimeError: /secret/path and more"
    assert [x.getMessage() for x in told] == [expected]
    assert told[0].exc_info is None


def test_other_sites_may_link_to_the_page_and_nothing_else(client):
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/", headers={**link, "sec-fetch-mode": "no-cors"}).status_code == 403
    assert client.get("/api/model", headers=link).status_code == 403
    assert client.post("/", headers=link).status_code == 403
    for site in ("same-origin", "none"):
        assert client.get("/api/model", headers={"sec-fetch-site": site}).status_code == 200


class TestToken:
    """A server that others can reach asks for the token it printed."""

    TOKEN = "T0k-en_" * 3

    @pytest.fixture
    def client(self, live):
        return client_of(live, hosts=None, token=self.TOKEN)

    @pytest.mark.parametrize(
        "path",
        [
            "/",
            "/?token=",
            "/?token=wrong",
            "/?token=%ff",
            "/api/model",
            f"/api/model?token={TOKEN}",
        ],
    )
    def test_nothing_is_served_without_it(self, client, path):
        response = client.get(path)
        assert response.status_code == 401
        assert "address that adasparse explore printed" in response.json()["error"]
        assert ask(client).status_code == 401

    @pytest.mark.parametrize("cookie", ["x", "adasparse_8765=wrong", "\x01;=", "adasparse_8765="])
    def test_other_cookies_do_not_help(self, client, cookie):
        assert client.get("/", headers={"cookie": cookie}).status_code == 401

    def test_a_browser_shows_it_once(self, client):
        response = client.get(f"/?token={self.TOKEN}", follow_redirects=False)
        assert (response.status_code, response.headers["location"]) == (303, "/")
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
        assert client.get("/").status_code == 200
        assert "payload" in answer(client)

    def test_a_cookie_of_another_server_of_the_machine_does_not_count(self, client):
        wrong = {"cookie": f"adasparse_1={self.TOKEN}"}
        assert client.get("/", headers=wrong).status_code == 401
