"""JSON Web Tokens before their signature is checked: refused with 401 or 403, or a header and claims."""

from __future__ import annotations

import base64

from kilocard.core.errors import Forbidden, Unauthorized
from kilocard.spec.services import OidcSpec
from kilocard.tenancy.claims import ALGORITHMS, good_until, read_claims, read_header, tenant_of

_OIDC = OidcSpec(issuer="i", audience=("a",), tenant_claim="x.tenant")


def _part(text: bytes) -> bytes:
    return base64.urlsafe_b64encode(text).rstrip(b"=")


SEEDS = [
    _part(b'{"alg":"RS256","kid":"1"}') + b"." + _part(b'{"iss":"i","aud":"a","exp":99,"x":{"tenant":"t"}}') + b".AAAA",
    _part(b'{"alg":"none"}') + b"." + _part(b"{}") + b".",
    # the two parts as text: the check encodes them, so that the fuzzer can change what is in them
    b'\x00{"alg":"ES256","typ":"at+jwt"}\x00{"iss":"i","aud":["b","a"],"exp":1e9,"nbf":1,"x.tenant":["t"]}',
    b'\x00{"alg":"EdDSA"}\x00{"iss":"i","aud":"a","exp":NaN}',
]


def check(data: bytes) -> None:
    if data[:1] == b"\x00":
        header, _, claims_text = data[1:].partition(b"\x00")
        data = _part(header) + b"." + _part(claims_text) + b".AAAA"
    if data.count(b".") != 2:  # Access takes only what has two for a token
        return
    try:
        assert read_header(data).algorithm in ALGORITHMS
        claims = read_claims(data)
        assert good_until(claims, _OIDC, 50.0) > 50.0
        assert tenant_of(claims, _OIDC, {"t"}) == "t"
    except (Unauthorized, Forbidden) as error:
        assert error.code in ("invalid_token", "unknown_tenant")
