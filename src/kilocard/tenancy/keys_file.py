"""The keys file: `tenant: [sha256:…]`, as text. Pure; `stores/keys_file.py` follows the file itself."""

from __future__ import annotations

from kilocard.core.errors import SpecError
from kilocard.spec.problems import Problems, of_another_file
from kilocard.spec.tenant_key import key_hash
from kilocard.spec.units import UnitError, kind_of
from kilocard.spec.yaml_document import read_document
from kilocard.tenancy.keys import Key, digest_of

ADVICE = "write tenant: [sha256:…], one line for each tenant"


def read_keys(text: str, file: str) -> tuple[Key, ...]:
    """All keys in a file's text. Raises SpecError that lists every problem with its line; no value is repeated.

    An empty file is a mistake (a write that was cut short), not an order to lock everybody out; `{}` is that.
    """
    with of_another_file():
        document = read_document(text, file=file)
    if not isinstance(document.value, dict):
        raise SpecError(f"{file}: is {kind_of(document.value)}; {ADVICE} ({{}} for none)")
    problems = Problems(document.lines)
    for where, problem, advice in document.found:
        problems.add(where, problem, advice)
    keys = []
    for tenant, hashes in document.value.items():
        if not tenant:
            problems.add((tenant,), "is no name of a tenant", ADVICE)
        if not isinstance(hashes, list):
            problems.add((tenant,), f"is {kind_of(hashes)}, not a list of hashes", ADVICE)
            continue
        for place, value in enumerate(hashes):
            try:
                keys.append(Key(digest_of(key_hash(value)), tenant))
            except UnitError as error:
                problems.add_error((tenant, place), error)
    problems.raise_if_any()
    return tuple(keys)
