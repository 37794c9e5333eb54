"""What a JSON Web Token says, once its signature is known to be good: which tenant, until when. Pure.

`read_header` looks at a token before any cryptography, so that garbage costs a few microseconds; `good_until` and
`tenant_of` judge the claims (RFC 7519 §4.1). Where keys come from and who checks signatures: `stores/jwks.py`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kilocard.core.errors import Forbidden, Unauthorized
from kilocard.spec.services import OidcSpec

#: clocks of the issuer and of this machine may differ by this much, in seconds
LEEWAY = 30.0
#: bytes; tokens with hundreds of groups in them take about 8 KB
LONGEST = 16 * 1024
#: signatures that are accepted: those whose key for checking is public. With a shared secret (HS256 …) whoever can
#: check could also sign, and a public key taken for that secret is the classic forgery; "none" is no signature
ALGORITHMS = frozenset(["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"])
#: kinds of token that may be used for access (RFC 8725 §3.11): not logout tokens and the like
_KINDS = frozenset({"jwt", "at+jwt", "jose"})


class Header(NamedTuple):
    """What a token says of its own signature. Not to be believed before the signature is checked."""

    algorithm: str
    #: None: it doesn't say which key
    key_id: str | None


def refused(why: str) -> Unauthorized:
    """The error for a token; `why` holds nothing of it."""
    return Unauthorized(f"The bearer token in this request is not accepted: {why}.", code="invalid_token")


def read_header(token: bytes) -> Header:
    """The header of a compact JWS. Raises Unauthorized for what can't be one that is accepted."""
    if len(token) > LONGEST:
        raise refused(f"it is longer than {LONGEST} bytes")
    fields = _json_object(token.partition(b".")[0])
    algorithm, kind, key_id = fields.get("alg"), fields.get("typ", "JWT"), fields.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise refused(f"its signature has to be one of {', '.join(sorted(ALGORITHMS))}")
    if "crit" in fields or "b64" in fields:
        raise refused("it asks for extensions that are not known here")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _KINDS:  # RFC 7515 §4.1.9
        raise refused("it is no access or identity token")
    if key_id is not None and not isinstance(key_id, str):
        raise refused("its key id is no text")
    return Header(algorithm, key_id)


def read_claims(token: bytes) -> dict[str, Any]:
    """The claims of a token whose header was read. Nothing is checked. Raises Unauthorized."""
    return _json_object(token.split(b".")[1])


def good_until(claims: Mapping[str, Any], oidc: OidcSpec, now: float) -> float:
    """Issuer, audience and times are right; the Unix time up to which they are. Raises Unauthorized.

    May be asked before the signature is checked too, to save the work: it says nothing of this gateway's tenants.
    """
    if claims.get("iss") != oidc.issuer:
        raise refused("another issuer made it")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(one, str) and one in oidc.audience for one in named):
        raise refused("it is made out to another audience")
    expires = _time(claims, "exp")
    if expires is None:
        raise refused("it has no time of expiry")
    if now >= expires + LEEWAY:
        raise refused("it has expired")
    begins = _time(claims, "nbf")
    if begins is not None and now < begins - LEEWAY:
        raise refused("it is not valid yet")
    return expires + LEEWAY


def is_younger(claims: Mapping[str, Any], moment: float) -> bool:
    """Was it made later than that (Unix time), clocks aside? One that does not say when was not.

    Not to be believed: who forges it gets another refusal, no more.
    """
    try:
        made = _time(claims, "iat")
    except Unauthorized:
        return False
    return made is not None and made > moment - LEEWAY


def tenant_of(claims: Mapping[str, Any], oidc: OidcSpec, declared: Collection[str]) -> str:
    """Whose token this is: only to be asked once its signature is checked. Raises Forbidden for a stranger's."""
    value = _claim(claims, oidc.tenant_claim)
    for name in value if isinstance(value, list) else [value]:
        if isinstance(name, str) and name in declared:
            return name
    # The same words whether the claim is missing or names a stranger: which tenants there are is nobody's business.
    raise Forbidden("This token names no tenant of this gateway.", code="unknown_tenant")


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """A claim of that very name (they may be URLs, with dots), else the one that the dots lead to."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:  # NaN is not either
        raise refused(f"its {name} is no time")
    return float(value)


def _json_object(part: bytes) -> dict[str, Any]:
    """One part of a token. Raises Unauthorized."""
    try:
        value = json.loads(base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise refused("it is no JSON Web Token")
    return value
