"""Prometheus: what to scrape, and the alert rules.

    promtool check config prometheus.yaml
    promtool check rules rules/kilocard.yaml

Engines are found through the gateway (`GET /targets`), which knows where they are wherever they run.
"""

from __future__ import annotations

from kilocard.deploy.alerts import rules
from kilocard.deploy.reachable import reachable
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.deploy.yaml_text import yaml_text
from kilocard.spec.model import ClusterSpec

_HEAD = "Written by `kilocard render prometheus`: change the cluster file and render again."


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    """prometheus.yaml and rules/kilocard.yaml. Raises UsageError where nobody can know the gateway's admin port."""
    admins = [str(reachable("--admin", "gateway.admin", place)) for place in options.admins or (spec.gateway.admin,)]
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


PROMETHEUS = Target("prometheus", "what Prometheus scrapes, and alert rules", render)
