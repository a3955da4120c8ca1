"""A server on this machine that speaks S3, as fixtures."""

import logging
import os

import pytest

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDFORTESTS", "AWS_SECRET_ACCESS_KEY": "sesame/open", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def s3_server():
    """Return its address; the tests of a module share the buckets."""
    pytest.importorskip("s3fs", reason="needs the package s3fs: pip install -e '.[s3]'")
    server = pytest.importorskip("moto.server", reason="needs the package moto").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_server, monkeypatch, tmp_path):
    """Return a boto client; the environment has credentials and no other settings of AWS."""
    import boto3
    import s3fs

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    yield client
    client.close()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(s3):
    """Return the name of an empty bucket."""
    s3.create_bucket(Bucket="gates")
    yield "gates"
    for entry in s3.list_objects_v2(Bucket="gates").get("Contents", []):
        s3.delete_object(Bucket="gates", Key=entry["Key"])
    s3.delete_bucket(Bucket="gates")
