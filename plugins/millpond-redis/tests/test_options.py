"""The URLs of a server that are taken, and the time that a call may take."""

from typing import Any

import pytest
from millpond_redis import RedisSupplier
from redis_servers import RedisServer

from millpond.errors import ConfigurationError
from millpond.stores.backend.registry import supplier, try_out


def test_a_name_with_a_url_in_it_is_a_server(server: RedisServer) -> None:
    assert supplier(f"redis://?url={server.url}&timeout=2.5") == RedisSupplier(server.url, 2.5)
    try_out(f"redis://?url={server.url}")


@pytest.mark.parametrize(
    "url",
    [
        *("localhost", "http://localhost", "redis://", "redis://host?password=hunter2", "", "unix://"),
        *("redis://host/first", "redis://host/-1", "redis://host/0/1", "redis://u:hunter2@host:port/0"),
        *("redis://h1,h2", "redis://h1%2Ch2", "redis://u:hunter2@h1,h2", "redis://h o", "redis://h;o", "redis://h*"),
        *("redis://a..b", f"redis://{'a' * 64}", "redis://h\nost", "REDIS://host", "redis://host/٣"),
        *("unix://relative/path", "unix:///a%00b", f"unix:///{'a' * 107}"),
        *("redis://host:99999", "redis://host:0", "redis://u:hunter2@[::1/0", "redis://u:hun/ter2@host"),
        *(None, 7, b"redis://:hunter2@host", ["redis://:hunter2@host"]),
    ],
)
def test_a_url_that_is_none_of_redis_is_refused(url: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'url' of the backend 'redis'.*must be redis://") as refused:
        RedisSupplier(url)
    assert "hunter2" not in str(refused.value)
    assert "hun/" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["redis://10.0.0.1", "redis://[fe80::1%25lo]:1/3", "rediss://a_b.c-d.", "redis://hå", f"unix:///{'a' * 106}"]
)
def test_a_url_that_may_be_one_of_redis_is_taken(url: str) -> None:
    assert RedisSupplier(url).url == url


@pytest.mark.parametrize("timeout", ["0", "-1", "inf", "nan", "soon", "1e300", "86401", "1_0", "٣", ""])
def test_a_timeout_that_is_none_is_refused(timeout: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'timeout' of the backend 'redis'.*must be a number of seconds"):
        supplier(f"redis://?timeout={timeout}")


@pytest.mark.parametrize(
    ("url", "certificate"),
    [("redis://host", "client.pem"), ("unix:///socket", "client.pem"), ("rediss://host", 7), ("rediss://host", "")],
)
def test_a_certificate_that_no_server_is_shown_is_refused(url: str, certificate: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'certificate' of the backend 'redis'.*if the server has TLS"):
        RedisSupplier(url, certificate=certificate)
