"""A bucket is reached as users of boto3 expect: profiles, endpoints, certificates, addressing."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from readie_infra.objects import (
    ObjectStore,
    ObjectStoreUnavailableError,
    S3Options,
    open_objects,
)
from readie_infra.objects.s3 import S3Objects
from support.lying_store import lying_store
from support.s3_servers import S3Server

KEY = "flavors/cpu/any/current.json"
HERE = "127.0.0.1"


@pytest.fixture
def only_files(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The server is known from AWS's configuration files alone, as the profile ``fleet``."""
    for name in s3.environment:
        monkeypatch.delenv(name)
    config, credentials = tmp_path / "config", tmp_path / "credentials"
    config.write_text(
        "[profile fleet]\nregion = us-east-1\nservices = ours\n"
        f"[services ours]\ns3 =\n    endpoint_url = {s3.url}\n"
    )
    credentials.write_text(
        f"[fleet]\naws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return config


def works(store: ObjectStore) -> bool:
    store.put(KEY, b"here")
    return store.get(KEY).data == b"here"


def url_of(store: ObjectStore) -> str:
    """Where the client would look for an object."""
    assert isinstance(store, S3Objects)
    named = {"Bucket": "the-bucket", "Key": "the-key"}
    return str(store._client.generate_presigned_url("get_object", Params=named))


def test_a_profile_brings_endpoint_region_and_credentials(
    s3: S3Server, only_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3.make_bucket()
    assert works(open_objects(url, S3Options(profile="fleet")))
    with pytest.raises(ObjectStoreUnavailableError, match="credentials"):
        open_objects(url, S3Options(endpoint_url=s3.url)).get(KEY)
    monkeypatch.setenv("AWS_PROFILE", "fleet")  # as workers and gateways are told
    assert works(open_objects(url))


def test_the_name_of_a_bucket_goes_where_it_is_told_to(
    only_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "fleet")
    elsewhere = "http://store.example:9000"
    in_path, in_host = f"{elsewhere}/the-bucket/", "http://the-bucket.store.example:9000/"
    made = {
        style: url_of(open_objects("s3://b", S3Options(endpoint_url=elsewhere, addressing=style)))
        for style in ("auto", "path", "virtual")
    }
    assert made["auto"].startswith(in_path)
    assert made["path"].startswith(in_path)
    assert made["virtual"].startswith(in_host)
    with only_files.open("a") as config:
        config.write("[profile other]\naws_access_key_id = x\naws_secret_access_key = x\n")
        config.write("s3 =\n    addressing_style = virtual\n")
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert url_of(open_objects("s3://b", S3Options(endpoint_url=elsewhere))).startswith(in_host)
    forced = S3Options(endpoint_url=elsewhere, addressing="path")
    assert url_of(open_objects("s3://b", forced)).startswith(in_path)


@pytest.fixture
def secured(s3: S3Server, tmp_path: Path) -> Iterator[str]:
    """The server's address by https, with a certificate of nobody's authority in ``own-ca.pem``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(tmp_path))
    with lying_store(s3.port, context) as proxy:
        yield proxy.url


def test_a_private_authority_is_trusted_when_it_is_given_and_only_then(
    s3: S3Server, secured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, bundle = s3.make_bucket(), tmp_path / "own-ca.pem"
    assert works(open_objects(url, S3Options(endpoint_url=secured, ca_bundle=bundle)))
    with pytest.raises(ObjectStoreUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        open_objects(url, S3Options(endpoint_url=secured)).get(KEY)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", secured)
    assert works(open_objects(url))


def _certificate(folder: Path) -> Path:
    """A certificate of this machine, signed by itself, with its key; alone in ``own-ca.pem``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HERE)])
    now = dt.datetime.now(dt.UTC)
    hour = dt.timedelta(hours=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - hour)
        .not_valid_after(now + 24 * hour)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HERE))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "own-ca.pem").write_bytes(public)
    both = folder / "server.pem"
    both.write_bytes(private + public)
    return both
