"""``adasparse explore``: its arguments and its mistakes."""

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
    ("host", "is_open"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)]
)
def test_only_this_machine_is_served_unless_told(monkeypatch, run_folder, host, is_open):
    served = []

    def serve(app, listener, **options):
        served.append((app, app_server.address_of(listener), options))
        listener.close()

    monkeypatch.setattr(app_server, "serve", serve)
    result = invoke(run_folder, "--host", host, "--no-browser")
    assert result.exit_code == 0, result.output
    [(app, address, options)] = served
    assert address.startswith("http://127.0.0.1:") and options["open_browser"] is False
    assert ("Everyone who can reach this machine" in result.stderr) == is_open
    assert (app.user_middleware[0].kwargs["hosts"] is None) == is_open


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
    with subprocess.Popen([sys.executable, "-c", *command], stdout=subprocess.PIPE) as process:
        address = process.stdout.readline().decode().strip()
        with urllib.request.urlopen(address) as answer:
            assert b"adasparse" in answer.read()
        process.terminate()
        process.wait(20)
