"""The certificates Python trusts, in the form Java reads.

A Java runtime brings its own list of certificate authorities and does not look at the system's, so behind a
company's proxy, where Python and curl work, it would refuse every download.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import warnings
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from headrace.local.cache import cache_root, write_atomically

__all__ = ["PASSWORD", "java_truststore"]

PASSWORD = "changeit"  # noqa: S105 - the store holds public certificates; Java wants some password

_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def _trusted() -> list[bytes]:
    """Return every trusted certificate in DER form, each once, in a stable order."""
    found = dict.fromkeys(ssl.create_default_context().get_ca_certs(binary_form=True))
    for bundle in [certifi.where(), *(os.environ.get(name, "") for name in _BUNDLES)]:
        try:
            content = Path(bundle).read_bytes() if bundle else b""
        except OSError:
            continue
        for pem in _PEM.findall(content):
            found[ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))] = None
    return sorted(found)


def java_truststore() -> Path | None:
    """Return a PKCS#12 store of what Python and its tools trust here; None if that is nothing at all."""
    trusted = _trusted()
    if not trusted:
        return None
    name = hashlib.sha256(b"".join(hashlib.sha256(der).digest() for der in trusted)).hexdigest()[:16]
    path = cache_root() / "trust" / f"{name}.p12"
    if path.is_file():
        return path
    certificates = []
    with warnings.catch_warnings():
        # Some old authorities have a serial number of zero; that is theirs to mend, not the user's to read.
        warnings.simplefilter("ignore")
        for number, der in enumerate(trusted):
            try:
                certificate = x509.load_der_x509_certificate(der)
            except ValueError:
                # Malformed fields: Java would not take them either.
                continue
            certificates.append(pkcs12.PKCS12Certificate(certificate, f"ca{number}".encode()))
    store = pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(PASSWORD.encode()))
    write_atomically(path, store)
    return path
