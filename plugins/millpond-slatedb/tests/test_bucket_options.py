"""The URLs of a bucket that are taken, and the time that a call may take."""

from typing import Any

import pytest
from millpond_slatedb import SlateDbSupplier

from millpond.errors import ConfigurationError
from millpond.stores.backend.registry import supplier


@pytest.mark.parametrize(
    "url",
    [
        *("", "bucket", "s3://", "s3:///prefix", "s3://b", "s3://Bucket", "s3://key:secret@bucket", "gs://bucket"),
        *("s3://bucket//a", "s3://bucket/a b", "s3://bucket/a?x=1", "s3://bucket/a#x", "s3://bucket/\n", 7, b"s3://ab"),
    ],
)
def test_a_url_that_names_no_bucket_is_refused(url: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'url' of the backend 'slatedb'.*must be s3://bucket"):
        SlateDbSupplier(url)


@pytest.mark.parametrize("url", ["s3://abc", "s3://my.bucket-1/", "s3://bucket/a/b_c", "s3://bucket/app=1"])
def test_a_url_that_names_a_bucket_is_taken(url: str) -> None:
    assert SlateDbSupplier(url).url == url


@pytest.mark.parametrize(
    "endpoint", ["", "host:9000", "ftp://host", "http://", "http://host:x", "http://u:p@host", "http://host/path", 7]
)
def test_an_endpoint_that_is_none_is_refused(endpoint: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'endpoint' of the backend 'slatedb'.*must be http://host:port"):
        SlateDbSupplier("s3://bucket", endpoint)


@pytest.mark.parametrize(
    ("option", "value", "form"),
    [
        *(("timeout", text, "a number of seconds") for text in ("0", "-1", "inf", "nan", "soon", "86401", "")),
        *(("block_cache", text, "a (size|number of bytes)") for text in ("1KiB", "much", "-1")),
        *(("region", text, "a region such as") for text in ("", "Frankfurt am Main")),
    ],
)
def test_other_options_that_make_no_sense_are_refused(option: str, value: str, form: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"'{option}' of the backend 'slatedb'.*must be {form}"):
        supplier(f"slatedb://?url=s3://bucket&{option}={value}")


def test_all_options_have_a_place_in_a_url() -> None:
    named = "slatedb://?url=s3://bucket/a&endpoint=https://host:1&region=eu-1&timeout=2.5&block_cache=1MiB"
    assert supplier(named) == SlateDbSupplier("s3://bucket/a", "https://host:1", "eu-1", 2.5, 2**20)
