"""``adasparse explore``: its arguments and its mistakes."""

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
import transformers
import typer
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

from adasparse.analysis.explorer.server import serve as app_server
from adasparse.analysis.explorer.server.app import LOCAL_HOSTS
from adasparse.cli.explore import explore

SMALL = {
    "vocab_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, "old": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.BertModel(transformers.BertConfig(**SMALL)).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(folder)
    return folder


def invoke(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(explore)
    return CliRunner().invoke(app, [str(x) for x in arguments])


@pytest.mark.parametrize(
    ("host", "allowed", "hosts"),
    [
        ("127.0.0.1", [], LOCAL_HOSTS),
        ("localhost", [], LOCAL_HOSTS),
        ("127.0.0.1", ["tunnel.example"], {*LOCAL_HOSTS, "tunnel.example"}),
        ("0.0.0.0", ["a.example", "b"], {*LOCAL_HOSTS, "a.example", "b"}),
        ("0.0.0.0", [], None),
    ],
)
def test_others_need_a_name_or_a_token(monkeypatch, run_folder, host, allowed, hosts):
    """With ``--host 0.0.0.0`` every name was once answered, without a token."""
    served = []

    def serve(app, listener, **options):
        served.append((app, app_server.address_of(listener), options))
        listener.close()

    monkeypatch.setattr(app_server, "serve", serve)
    names = [x for name in allowed for x in ("--allow-host", name)]
    result = invoke(run_folder, "--host", host, *names, "--no-browser")
    assert result.exit_code == 0, result.output
    [(app, address, options)] = served
    assert address.startswith("http://127.0.0.1:") and options["open_browser"] is False
    guard = app.user_middleware[0].kwargs
    assert guard["hosts"] == hosts
    assert guard["token"] == options["token"]
    assert (options["token"] is None) == (hosts is not None)
    assert options["token"] is None or len(options["token"]) >= 16
    assert ("Everyone who" in result.stderr) == (host == "0.0.0.0")
    assert "Loading the model in" in result.stderr


@pytest.mark.parametrize("name", ["http://a.example", "a.example:80", "", "a b"])
def test_a_name_must_be_a_name(run_folder, name):
    result = invoke(run_folder, "--host", "0.0.0.0", "--allow-host", name)
    assert result.exit_code == 1
    assert f"without scheme and port; got {name!r}" in result.stderr


def test_a_port_that_is_taken_is_named(run_folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = invoke(run_folder, "--port", port)
    assert result.exit_code == 1
    assert f"Cannot listen on 127.0.0.1 port {port}" in result.stderr


def test_a_folder_without_a_model_is_named(tmp_path):
    result = invoke(tmp_path)
    assert result.exit_code == 1
    assert str(tmp_path) in result.stderr and "Traceback" not in result.stderr


def test_a_folder_that_is_not_there_is_named():
    result = invoke("no-such-run")
    assert result.exit_code == 2
    assert "no-such-run" in result.stderr


@pytest.mark.slow
def test_the_command_serves_until_it_is_stopped(run_folder):
    command = (
        "import typer; from adasparse.cli.explore import explore; typer.run(explore)",
        str(run_folder),
        "--no-browser",
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", *command], **pipes) as process:
        address = process.stdout.readline().decode().strip()
        with urllib.request.urlopen(address) as answer:
            assert b"adasparse" in answer.read()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read().decode().splitlines()
        assert process.wait(20) == 130
    assert rest[-1] == "Interrupted." and "Traceback" not in " ".join(rest)
