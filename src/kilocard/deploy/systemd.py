"""systemd: one unit that runs the cluster of one machine, and the user that it runs as.

The unit goes to /etc/systemd/system/, the user's line to /etc/sysusers.d/, the cluster file to /etc/kilocard/. Tried
with systemd 252; `systemd-analyze verify kilocard.service` checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.engines.registry import engine
from kilocard.spec.dump import dump
from kilocard.spec.model import ClusterSpec
from kilocard.spec.units import listen_address

#: where the cluster file is looked for
CLUSTER = "/etc/kilocard/cluster.yaml"
#: a line that is left out
NOTHING = "#-"
#: of the unit's own folder, of logs, and the first port that everybody may take
STATE, LOGS, FIRST_FREE_PORT = "/var/lib/kilocard", "/var/log/", 1024
#: seconds on top of all drains until systemd kills
AFTER_DRAIN = 30

_UNIT = """\
# Written by `kilocard render systemd`: change the cluster file and render again.
[Unit]
Description=kilocard: {what}
Documentation=https://pypi.org/project/kilocard/
After=network-online.target {after}
Wants=network-online.target

[Service]
Type=exec
User=kilocard
# Python's environment with kilocard in it; engines are looked for in the same PATH.
Environment=PATH=/opt/kilocard/bin:/usr/local/bin:/usr/bin:/bin
# Models, keys, usage and logs.
Environment=KILOCARD_HOME=/var/lib/kilocard
StateDirectory=kilocard
WorkingDirectory=/var/lib/kilocard
# Secrets such as HF_TOKEN=…, one a line; readable by root alone.
EnvironmentFile=-/etc/kilocard/secrets.env
ExecStart=/usr/bin/env kilocard {command} {cluster}
# The cluster file is followed anyway (gateway.watch); this asks at once.
ExecReload=/bin/kill -HUP $MAINPID

Restart=always
RestartSec=2
# A stop drains: requests finish, then engines end. Only the main process is told, it tells the others.
KillMode=mixed
TimeoutStopSec={stop}
# Each stream takes two or three.
LimitNOFILE=1048576
# Engines share memory between their processes and pin some of it.
LimitMEMLOCK=infinity
{oom}
{may}
NoNewPrivileges=yes
ProtectSystem=strict
{writes}
ProtectHome={homes}
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
LockPersonality=yes
# Not PrivateDevices (GPUs are devices) and not MemoryDenyWriteExecute (engines compile kernels as they run).

[Install]
WantedBy=multi-user.target
"""

_OOM = """\
# An engine that takes too much memory is killed alone, and started again; the gateway goes on.
OOMPolicy=continue
"""

_LOW_PORT = """\
# Ports below 1024 are not everybody's.
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE"""

_USER = """\
# For /etc/sysusers.d/: `systemd-sysusers` makes the user. GPUs belong to these groups on most distributions.
g video -
g render -
u kilocard - "kilocard" /var/lib/kilocard
m kilocard video
m kilocard render
"""


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    """kilocard.service and the user's line."""
    started = [pool for pool in spec.pools.values() if not pool.exists]
    # one after the other, as `kilocard up` does it: the gateway's requests, then the engines
    drain = spec.gateway.shutdown_delay + spec.gateway.drain + max((pool.drain.grace for pool in started), default=0.0)
    gpus = any(engine(pool.engine).gpu_count(pool) for pool in started)
    unit = _UNIT.format(
        what="gateway and replicas" if started else "gateway",
        after="nvidia-persistenced.service" if gpus else "",
        command="up" if started else "gateway",
        cluster=CLUSTER,
        stop=ceil(drain) + AFTER_DRAIN,
        oom=_OOM if started else "",
        may=_LOW_PORT if _low_port(spec) else NOTHING,
        writes="\n".join(_writes(spec)) or NOTHING,
        homes="read-only" if _at_home(dump(spec)) else "yes",
    )
    lines = [line.rstrip() for line in unit.split("\n") if line != NOTHING]
    return {"kilocard.service": "\n".join(lines), "sysusers.d/kilocard.conf": _USER}


def _low_port(spec: ClusterSpec) -> bool:
    ports = [listen_address(place).port for place in (spec.gateway.listen, spec.gateway.admin)]
    return any(0 < port < FIRST_FREE_PORT for port in ports)


def _writes(spec: ClusterSpec) -> list[str]:
    """Folders outside of the unit's own that the gateway writes to. Those in /var/log systemd makes."""
    gateway = spec.gateway
    log, record = gateway.access_log, gateway.record
    files = [gateway.store, log.path if log is not None else None, record.path if record is not None else None]
    folders = sorted({file.rpartition("/")[0] or "/" for file in files if file is not None and file.startswith("/")})
    return [
        f"LogsDirectory={_quoted(folder.removeprefix(LOGS))}"
        if folder.startswith(LOGS) and ".." not in folder
        else f"ReadWritePaths={_quoted(folder)}"
        for folder in folders
        if not f"{folder}/".startswith(f"{STATE}/")
    ]


def _quoted(path: str) -> str:
    """One word of a unit, in which % and \\ mean something."""
    plain = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n").replace("\r", "\\r")
    return plain if plain == path and not set(path) & set(" \t'") else f'"{plain}"'


def _at_home(document: object) -> bool:
    """Whether something in the cluster file is in a person's folder, which a unit sees only if it is told to."""
    if isinstance(document, Mapping):
        return any(map(_at_home, document.values()))
    if isinstance(document, list):
        return any(map(_at_home, document))
    return isinstance(document, str) and document.startswith(("/home/", "/root/"))


SYSTEMD = Target("systemd", "a unit for the cluster of one machine", render)
