"""HAProxy before gateways or replicas: least connections, nothing buffered or delayed, patience, active checks.

    haproxy -c -f haproxy.cfg                 # checks it
    haproxy -db -f haproxy.cfg                # runs it in the foreground

Keywords as HAProxy 2.4 and later know them; tried with 2.6.
"""

from __future__ import annotations

from kilocard.deploy.front import FAILURES, REST, Front, Server, front
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.spec.model import ClusterSpec

#: addresses that a name with several of them may have
MOST_ADDRESSES = 64

_TEXT = """\
# Written by `kilocard render haproxy`: change the cluster file and render again.
# {behind}
global
  # No maxconn: as many connections as the limit of open files allows (ulimit -n, or LimitNOFILE= of its unit).
  tune.bufsize {buffer}

defaults
  mode http
  # Small chunks of a stream go on at once; without this each waits for more.
  option http-no-delay
  http-reuse safe
  # Kept for less long than the servers keep them, or a request meets a closing connection.
  timeout connect {connect}s
  timeout client {silence}s
  # Before the first token nothing comes, for as long as the prompt and the queue take.
  timeout server {silence}s
  # Where a server has its bound of requests: as long as the client would wait for the first token.
  timeout queue {silence}s
  timeout http-request 30s
  timeout http-keep-alive 75s
  # Another server only where none got the request.
  retries 2
  retry-on conn-failure
  option redispatch 1
  # A client that leaves ends the generation, also while it waits.
  option abortonclose
{resolvers}
frontend kilocard
  bind {listen}
  option forwardfor
  # The body's cap, by its announced length; the gateway counts those that announce none.
  http-request deny deny_status 413 if {{ req.body_size gt {body} }}
  default_backend kilocard

backend kilocard
  balance leastconn
{health}  default-server check inter 2s fall {failures} rise 1 slowstart {rest}s
  default-server observe layer4 error-limit {failures} on-error mark-down
  default-server pool-purge-delay {keep_alive}s
{servers}
"""

_RESOLVERS = """
resolvers system
  parse-resolv-conf
  hold valid 5s
"""


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    """haproxy.cfg. Raises UsageError as `front` does."""
    return {"haproxy.cfg": _config(front(spec, options))}


def _config(what: Front) -> str:
    return _TEXT.format(
        behind=what.comment,
        buffer=max(16_384, what.header + 1024),
        connect=what.connect,
        silence=what.silence,
        resolvers=_RESOLVERS if any(server.several for server in what.servers) else "",
        listen=what.listen,
        body=what.body,
        health=_health(what),
        failures=FAILURES,
        rest=REST,
        keep_alive=what.keep_alive,
        servers="\n".join(map(_server, what.servers)),
    )


def _health(what: Front) -> str:
    return "" if what.health is None else f"  option httpchk GET {what.health}\n  http-check expect status 200\n"


def _server(server: Server) -> str:
    settings = f" weight {server.weight}" if server.weight != 100 else ""
    settings += f" maxconn {server.most}" if server.most is not None else ""
    if server.several:
        place = f"{server.name}- {MOST_ADDRESSES} {server.at}"
        return f"  server-template {place} resolvers system init-addr last,libc,none{settings}"
    return f"  server {server.name} {server.at}{settings}"


HAPROXY = Target("haproxy", "HAProxy in the same places", render)
