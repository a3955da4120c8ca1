"""The hosts that the server answers for."""

import pytest

from streamkit.serve.hosts import host_of, may_ask


@pytest.mark.parametrize(
    "header",
    ["127.0.0.1", "127.0.0.1:8000", "10.1.2.3:80", "[::1]", "[::1]:8000", "[fe80::1%eth0]:1", "localhost",
     "localhost:8000", "LOCALHOST", "localhost.", "localhost.:80"],
)  # fmt: skip
def test_addresses_and_this_machine_may_ask(header):
    assert may_ask(header)


@pytest.mark.parametrize(
    "header",
    ["", " ", "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "localhost:evil",
     "127.0.0.1:evil", "[::1].evil.example", "[evil.example]", "evil.example:80:80", "1", "0x7f.1", "localhosts",
     "127.0.0.1@evil.example", "evil.example/127.0.0.1"],
)  # fmt: skip
def test_names_may_not(header):
    assert not may_ask(header)


def test_names_that_are_allowed_may():
    allowed = {"cameras.example"}
    for header in ("cameras.example", "Cameras.Example:8000", "cameras.example.:80"):
        assert may_ask(header, allowed)
    for header in ("a.cameras.example", "cameras.example.evil.example", "amerascexample", ""):
        assert not may_ask(header, allowed)


def test_the_host_of_a_header():
    assert host_of("Gate.Local.:8000") == "gate.local"
    assert host_of("[::1]:80") == "::1"
    assert host_of("::1") == "::1"
