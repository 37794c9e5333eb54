"""Another cluster file for a gateway that runs: is it fit, and what of it can be taken over?"""

from __future__ import annotations

from typing import NamedTuple

from kilocard.gateway.certificates import load as load_certificate
from kilocard.spec.changes import adoptable, differences
from kilocard.spec.model import ClusterSpec
from kilocard.tenancy.openness import refuse_open


class Takeover(NamedTuple):
    #: the new cluster, as far as the process can become it
    spec: ClusterSpec
    #: paths of keys that change, and of those that keep their old value until a restart
    changed: list[str]
    restart: list[str]


def judged(running: ClusterSpec, new: ClusterSpec) -> Takeover:
    """Raises KilocardError where the new file must not come into force: then nothing has changed."""
    spec, restart = adoptable(running, new)
    refuse_open(spec)  # the address that stays may be another one than the file's
    if spec.gateway.tls is not None and spec.gateway.tls != running.gateway.tls:
        load_certificate(spec.gateway.tls)
    return Takeover(spec, list(differences(running, spec)), restart)
