"""Envoy before gateways or replicas: least requests, nothing buffered, patience, active and passive checks.

    envoy --mode validate -c envoy.yaml       # checks it
    envoy -c envoy.yaml                       # runs it in the foreground

Fields as Envoy's v3 API has them; tried with 1.40. The endpoint picker (ext_proc) is another thing: here Envoy chooses.
"""

from __future__ import annotations

from typing import Any

from kilocard.deploy.front import FAILURES, REST, Front, Server, front
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.deploy.yaml_text import yaml_text
from kilocard.spec.model import ClusterSpec
from kilocard.spec.units import Address

_TYPE = "type.googleapis.com/envoy.extensions."
_HEAD = "Written by `kilocard render envoy`: change the cluster file and render again."
#: Envoy's own default of 1,024 would refuse (503) what waits for a slow first token
MOST = 20_000

Thing = dict[str, Any]


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    """envoy.yaml. Raises UsageError as `front` does."""
    what = front(spec, options)
    document = {
        "static_resources": {"listeners": [_listener(what)], "clusters": [_cluster(what)]},
        "layered_runtime": {
            "layers": [
                {"name": "static", "static_layer": {"overload.global_downstream_max_connections": MOST}},
            ]
        },
    }
    return {"envoy.yaml": yaml_text(document, _HEAD)}


def _listener(what: Front) -> Thing:
    manager = {
        "@type": _TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "kilocard",
        "codec_type": "AUTO",
        "use_remote_address": True,
        "max_request_headers_kb": max(1, what.header // 1024),
        # 0 s: a stream may be silent for longer than the usual five minutes; the route's own bounds hold
        "stream_idle_timeout": "0s",
        "request_headers_timeout": "30s",
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [_route(what)]}],
        },
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": _TYPE + "filters.http.router.v3.Router"}}
        ],
        "access_log": [
            {
                "name": "envoy.access_loggers.stdout",
                "typed_config": {"@type": _TYPE + "access_loggers.stream.v3.StdoutAccessLog"},
            }
        ],
    }
    return {
        "name": "kilocard",
        "address": _address(what.listen),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _route(what: Front) -> Thing:
    return {
        "match": {"prefix": "/"},
        "route": {
            "cluster": "kilocard",
            # no bound on a whole answer; nothing may come for so long, as before the first token
            "timeout": "0s",
            "idle_timeout": f"{what.silence}s",
            # only where no server got the request
            "retry_policy": {
                "retry_on": "connect-failure,refused-stream",
                "num_retries": 2,
                "retry_host_predicate": [
                    {
                        "name": "envoy.retry_host_predicates.previous_hosts",
                        "typed_config": {"@type": _TYPE + "retry.host.previous_hosts.v3.PreviousHostsPredicate"},
                    }
                ],
                "host_selection_retry_max_attempts": 5,
            },
        },
    }


def _cluster(what: Front) -> Thing:
    options = {
        "@type": _TYPE + "upstreams.http.v3.HttpProtocolOptions",
        # shorter than the servers keep a connection, or a request meets one that is just being closed
        "common_http_protocol_options": {"idle_timeout": f"{what.keep_alive}s"},
        "explicit_http_config": {"http_protocol_options": {}},
    }
    return {
        "name": "kilocard",
        "type": "STRICT_DNS" if any(map(_is_name, what.servers)) else "STATIC",
        "connect_timeout": f"{what.connect}s",
        # all servers are compared, not two that chance draws; by whole requests, weights apart
        "load_balancing_policy": {
            "policies": [
                {
                    "typed_extension_config": {
                        "name": "envoy.load_balancing_policies.least_request",
                        "typed_config": {
                            "@type": _TYPE + "load_balancing_policies.least_request.v3.LeastRequest",
                            "selection_method": "FULL_SCAN",
                        },
                    }
                }
            ]
        },
        "circuit_breakers": {
            "thresholds": [{"max_connections": MOST, "max_requests": MOST, "max_pending_requests": MOST}]
        },
        "outlier_detection": {
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": FAILURES,
            # an engine's 500 is an answer; many in a row are an illness
            "consecutive_5xx": 10,
            "interval": "1s",
            "base_ejection_time": f"{REST}s",
            "max_ejection_percent": 50,
        },
        "health_checks": _health_checks(what),
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
        "load_assignment": {
            "cluster_name": "kilocard",
            "endpoints": [{"lb_endpoints": [_endpoint(server) for server in what.servers]}],
        },
    }


def _health_checks(what: Front) -> list[Thing]:
    check: Thing = {
        "timeout": "2s",
        "interval": "2s",
        "no_traffic_interval": "2s",
        "unhealthy_threshold": FAILURES,
        "healthy_threshold": 1,
    }
    return [check | ({"tcp_health_check": {}} if what.health is None else {"http_health_check": {"path": what.health}})]


def _endpoint(server: Server) -> Thing:
    endpoint: Thing = {"endpoint": {"address": _address(server.at)}}
    if server.weight != 100:
        endpoint["load_balancing_weight"] = server.weight
    return endpoint


def _address(at: Address) -> Thing:
    return {"socket_address": {"address": at.host, "port_value": at.port}}


def _is_name(server: Server) -> bool:
    """Not an address in numbers: Envoy looks it up, again and again."""
    host = server.at.host
    return ":" not in host and not host.replace(".", "").isdecimal()


ENVOY = Target("envoy", "Envoy in the same places", render)
