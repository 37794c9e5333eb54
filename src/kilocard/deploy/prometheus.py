"""Prometheus: what to scrape, and the alert rules.

    promtool check config prometheus.yaml
    promtool check rules rules/kilocard.yaml

Engines are found through the gateway (`GET /targets`), which knows where they are wherever they run.
"""

from __future__ import annotations

from kilocard.core.errors import UsageError
from kilocard.deploy.alerts import rules
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.deploy.yaml_text import yaml_text
from kilocard.spec.model import ClusterSpec
from kilocard.spec.units import UnitError, listen_address

_HEAD = "Written by `kilocard render prometheus`: change the cluster file and render again."


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    """prometheus.yaml and rules/kilocard.yaml. Raises UsageError where nobody can know the gateway's admin port."""
    admins = [_admin(place) for place in options.admins or (spec.gateway.admin,)]
    document = {
        # 30 s is the shortest time that an alert waits: two readings within it
        "global": {"scrape_interval": "10s", "evaluation_interval": "10s"},
        "rule_files": ["rules/kilocard.yaml"],
        "scrape_configs": [
            {"job_name": "kilocard", "static_configs": [{"targets": admins}]},
            {
                "job_name": "engines",
                "http_sd_configs": [{"url": f"http://{admin}/targets", "refresh_interval": "10s"} for admin in admins],
            },
        ],
    }
    return {"prometheus.yaml": yaml_text(document, _HEAD), "rules/kilocard.yaml": yaml_text(rules(spec), _HEAD)}


def _admin(place: str) -> str:
    try:
        at = listen_address(place)
    except UnitError as error:
        raise UsageError(f"--admin {error.problem}: {error.advice}") from None
    if not at.port:
        raise UsageError(f"gateway.admin is {place}, any free port: name it with --admin host:port")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(at.host, at.host)  # noqa: S104  # only compared
    return str(at._replace(host=host))


PROMETHEUS = Target("prometheus", "what Prometheus scrapes, and alert rules", render)
