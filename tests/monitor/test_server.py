"""The page and its data are served to this machine, to those who ask for this host, and nothing else is."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse
from http.server import ThreadingHTTPServer
from pathlib import Path
from shutil import rmtree
from threading import Thread

import pytest

from millpond.adapters.monitor.query_monitor import QueryMonitor
from millpond.adapters.monitor.server import server
from millpond.errors import ConfigurationError
from tests.inspect.checkpoints import Query
from tests.inspect.test_state_inspector import filled


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return filled(tmp_path)


@pytest.fixture
def serving(query: Query) -> Iterator[ThreadingHTTPServer]:
    with server(QueryMonitor(str(query.checkpoint), str(query.state)), 0, 0.0) as found:
        thread = Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def ask(
    serving: ThreadingHTTPServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", serving.server_port, timeout=20)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_the_page_is_whole_and_runs_nothing_but_its_own(serving: ThreadingHTTPServer) -> None:
    answer, text = ask(serving, "/", host=f"localhost:{serving.server_port}")
    assert answer.status == 200
    for section in ("topology", "steps", "work", "sources", "operators", "reasons", "stores", "tasks"):
        assert f'<section id="{section}"' in text
    assert 'data-interval="0"' in text
    assert "prefers-color-scheme: dark" in text
    assert re.findall(r"(?:src|href|url)[=(]\W*(?:https?:)?//", text) == []
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; connect-src 'self'; ")
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert f"{tag}-src 'sha256-{b64encode(sha256(inside.encode()).digest()).decode()}'" in policy


def test_the_data_are_those_of_the_query_and_errors_are_said(serving: ThreadingHTTPServer, query: Query) -> None:
    answer, text = ask(serving, "/data.json")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(text)["batch"] == 2
    answer, text = ask(serving, "/metrics")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'millpond_batch{query="3f",name=""} 2\n' in text
    rmtree(query.checkpoint)
    answer, text = ask(serving, "/data.json")
    assert answer.status == 503
    assert "there is no checkpoint" in json.loads(text)["error"]
    answer, text = ask(serving, "/metrics")
    assert answer.status == 503
    assert "there is no checkpoint" in text


def test_other_hosts_paths_and_methods_are_refused(serving: ThreadingHTTPServer) -> None:
    port = serving.server_port
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1:{port + 1}", "127.0.0.1", ""):
        assert ask(serving, "/data.json", host=host)[0].status == 403
    for path in ("/../page.css", "/page.css", "/%2e%2e/etc/passwd", "/data.json?x", "/data.json/"):
        assert ask(serving, path)[0].status == 404
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
        answer, _ = ask(serving, "/", method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    assert ask(serving, "/", "TRACE")[0].status == 501
    assert serving.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_refused(serving: ThreadingHTTPServer, query: Query) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        server(QueryMonitor(str(query.checkpoint)), serving.server_port, 1.0)
