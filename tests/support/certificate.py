"""A certificate that is its own authority, for servers of tests that encrypt."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12

__all__ = ["self_signed"]


def self_signed(key: Path, certificate: Path, *hosts: str, store: tuple[Path, str] | None = None) -> None:
    """Write a private key and a certificate of it, as PEM.

    Args:
        key: The private key's file; its owner only may read it.
        certificate: The certificate's file, which clients can trust.
        hosts: Names and addresses that it is valid for.
        store: Where to put both as PKCS #12, too, and the password of that file.
    """
    private = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hosts[0])])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([_named(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.touch(mode=0o600)
    key.write_bytes(pem)
    if store is not None:
        path, password = store
        sealed = serialization.BestAvailableEncryption(password.encode())
        path.touch(mode=0o600)
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"server", private, made, None, sealed))


def _named(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
