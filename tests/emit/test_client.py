import re

import pytest

from streamkit.emit.client import Client, SendError, address, tls_context
from streamkit.media.uris import mask

PORT = "the port in url must be a number from 1 to 65535, as in mqtt"
SCHEMES = {"mqtt": (1883, False), "mqtts": (8883, True)}


def test_an_address_is_parsed_and_shown_without_credentials():
    broker = address("mqtts://me:p%2Fs%40s@broker/x", SCHEMES)
    assert (broker.host, broker.port, broker.user, broker.password, broker.tls, broker.path) == (
        "broker",
        8883,
        "me",
        "p/s@s",
        True,
        "/x",
    )
    assert str(broker) == "mqtts://broker:8883/x"
    assert str(address("mqtt://[::1]:99", SCHEMES)) == "mqtt://[::1]:99"
    assert str(address("mqtt://u:p@[::1]", SCHEMES)) == "mqtt://[::1]:1883"
    assert str(address("mqtt://h:/x?to=a@b", SCHEMES)) == "mqtt://h:1883/x"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mqqt://h", "url must begin with mqtt:// or mqtts://, as in mqtt://host; did you mean 'mqtt'"),
        ("broker:1883", "url must begin with mqtt://"),
        (
            "mqtt://",
            "url must be mqtt:// and a host, as in mqtt://broker.example:1883; write user:password@",
        ),
        ("mqtt://[::1", "url must be mqtt:// and a host"),
        ("mqtt://u:se/cret@h", "%2F for /"),
        ("mqtt://u:4711/cret@h", "%2F for /"),
        ("mqtt://u:se#cret@h", "%23 for #"),
        ("mqtt://u:se?cret@h", "%3F for ?"),
        ("mqtt://u:cret", PORT),
        ("mqtt://h:port", PORT),
        ("mqtt://h:99999", PORT),
        ("mqtt://u:cret@h:0", PORT),
        ("mqtt://u:cret@h:-1", PORT),
        ("mqtts://u:cret@[::1]:123456", PORT),
    ],
)
def test_an_invalid_address_is_refused_without_showing_it(url, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        address(url, SCHEMES)
    assert "cret" not in str(caught.value)
    assert mask(str(caught.value)) == str(caught.value), "what is said of secrets is none itself"


def test_certificates_need_an_encrypted_address():
    with pytest.raises(ValueError, match="write mqtts:// in the url, or leave tls out"):
        address("mqtt://h", SCHEMES, {"ca": "x"})


def test_unreadable_certificates_are_an_error(tmp_path):
    with pytest.raises(SendError, match=r"the certificates cannot be used \(.*nowhere.pem\)"):
        tls_context({"ca": str(tmp_path / "nowhere.pem")})


def test_secrets_are_hidden_anywhere_in_a_message():
    client = Client()
    client.secrets = ["hunter2", ""]
    text = client.redact("cannot log in\n at amqp://me:other@host with hunter2 and token=abc or ?token=abc")
    assert text == "cannot log in at amqp://me:***@host with *** and token=abc or ?token=***"
