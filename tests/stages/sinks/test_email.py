"""The options of `email`: mistakes that people make, told with the way out and without secrets."""

import json

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError

GOOD = {"stage": "email", "url": "smtp://me:hunter2@mail.example.com", "mail_from": "a@b.c", "to": "x@y.z"}


def problems(**changed):
    stages = {"mail": {name: value for name, value in {**GOOD, **changed}.items() if value is not None}}
    text = json.dumps({"sources": {"gate": "test://"}, "stages": stages})
    try:
        build(read_text(text))
    except ConfigError as error:
        return str(error)
    return ""


def test_valid_options_are_accepted():
    assert problems() == ""
    assert problems(url="smtps://me:hunter2@h:465", tls={"ca": "ca.pem"}) == ""
    assert problems(url="smtp://localhost:25", unencrypted=True) == ""
    assert problems(url="smtp://[::1]:25", unencrypted=True) == ""
    assert (
        problems(
            to=["Ops <ops@example.com>", "x@y.z"], mail_from="Kamerák <a@b.c>", max_per_hour=5, batch_window="1min"
        )
        == ""
    )
    assert (
        problems(send="objects", labels=["person"], subject="{label} at {source}", body="{time} {text} {track_id}")
        == ""
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"url": "mail.example.com"}, "url must begin with smtp:// or smtps://, as in smtp://host"),
        ({"url": "stmp://me:hunter2@h"}, "did you mean 'smtp'?"),
        ({"url": "smtp://me:hunter2/4@h"}, "in a user or password %2F for /"),
        (
            {"unencrypted": True},
            "which is allowed to a server on this machine only, as in smtp://127.0.0.1:25; leave it out",
        ),
        (
            {"unencrypted": True, "url": "smtps://127.0.0.1"},
            "unencrypted is for smtp://; smtps:// is encrypted from its first byte",
        ),
        ({"to": "ops"}, "to must be an address such as ops@example.com, got 'ops'"),
        ({"to": []}, "to must contain at least one address"),
        ({"to": "a@b.c, d@e.f"}, "to must be one address such as ops@example.com; write several as a list"),
        ({"mail_from": "a@b.c\nBcc: all"}, "mail_from must be an address such as ops@example.com"),
        ({"mail_from": None, "from": "cameras@example.com"}, "the sender address of mails is mail_from"),
        ({"subject": "{txt}"}, "subject has an unknown variable {txt}; did you mean 'text'?"),
        ({"subject": "{label}"}, "subject has an unknown variable {label}"),
        ({"max_images": -1}, "max_images must be 0 or more, got -1"),
        ({"max_per_hour": 0}, "mail.max_per_hour must be at least 1"),
        ({"batch_window": "soon"}, "mail.batch_window must be a duration such as 10s"),
        ({"link": "example.com"}, "link must be an address such as https://10.0.0.2:8000/, got 'example.com'"),
        ({"when": "alarms"}, "no stage writes the event 'alarms'"),
    ],
)
def test_invalid_options_are_refused_with_the_fix(changed, message):
    problem = problems(**changed)
    assert message in problem
    assert "hunter2" not in problem
