"""What is no one's to read, and therefore stands in no rendered file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kilocard.core.errors import UsageError
from kilocard.spec.model import PoolSpec

#: the hub's token under its usual names
HUB_TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACEHUB_API_TOKEN"})
#: stands in a chart's values where the cluster file has a password or token, which the pods take from a Secret
HIDDEN = "from-a-secret"
#: names of variables and flags (in capitals, with _) that hold a secret …
_NAME = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|APIKEY|CREDENTIALS?)$|(?:^|_)(?:KEY|PASS|PWD|AUTH)$"
    r"|(?:^|_)SECRET_|PRIVATE_KEY|SECRET_KEY"
)
#: … and such as only say where one is
_PLACE = re.compile(r"_(?:FILE|PATH|DIR|NAME)$")
#: a URL with a password, or a key as their makers write them
_VALUE = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#@:]*:[^\s/?#@]+@|(?<![A-Za-z0-9_-])(?:hf_|sk-|ghp_|nvapi-)[A-Za-z0-9_-]{16,}"
)


def is_secret(name: str, value: object = "") -> bool:
    """Whether a variable or flag of this name, or with this value, holds something that no one should read."""
    capitals = re.sub(r"[-.]", "_", name.upper())
    return (_NAME.search(capitals) is not None and _PLACE.search(capitals) is None) or is_secret_value(value)


def is_secret_value(value: object) -> bool:
    return isinstance(value, str) and (_VALUE.search(value) is not None or value.endswith(HIDDEN))


def public(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that may be written into files."""
    return {key: value for key, value in env.items() if not is_secret(key, value)}


def refuse_secrets(pool: PoolSpec) -> None:
    """Raises UsageError for a secret on the pool's command line, which rendered files show."""
    for key, value in pool.args.items():
        # a flag without a text is a switch: `hf-token: true` takes the token from elsewhere
        if any(isinstance(item, str) and is_secret(key, item) for item in _items(value)):
            raise UsageError(
                f"pool {pool.name!r}: args.{key} would stand in the rendered files for everybody to read; the gateway "
                "sends no such key to replicas: remove it, the network policy keeps others away; what the engine "
                "itself needs to log in somewhere belongs into `env`"
            )
    for place, (word, after) in enumerate(_pairs(pool.command)):
        flag, equals, _ = word.lstrip("-").partition("=")
        if is_secret_value(word) or (word.startswith("-") and is_secret(flag) and (equals or after[:1] not in "-")):
            raise UsageError(
                f"pool {pool.name!r}: command[{place}] would stand in the rendered files for everybody to read: put it "
                "into `env`, under a name that ends in TOKEN, KEY or PASSWORD"
            )
    if is_secret_value(pool.model):
        raise UsageError(f"pool {pool.name!r}: model has a password in it: let the engine fetch it without one")


def refuse_passwords(document: object, path: str = "") -> None:
    """`document`: a cluster file that is about to be written. Raises UsageError for a text in it that is a secret."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            refuse_passwords(value, f"{path}.{key}".lstrip("."))
    elif isinstance(document, list | tuple):
        for place, value in enumerate(document):
            refuse_passwords(value, f"{path}[{place}]")
    elif is_secret_value(document):
        raise UsageError(f"{path} has a password or a key in it, and would stand in the rendered files: take it out")


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, tuple) else (value,)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word with the one behind it."""
    return zip(words, [*words[1:], ""], strict=False)
