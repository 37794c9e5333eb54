"""nginx before gateways or replicas: least connections, no buffering, patience, passive checks.

    nginx -c $PWD/nginx.conf                  # by itself
    /etc/nginx/conf.d/kilocard.conf           # or as a part of an nginx that is there: conf.d/kilocard.conf alone

Directives as nginx 1.18 and later know them; tried with 1.22.
"""

from __future__ import annotations

from kilocard.deploy.front import FAILURES, REST, Front, Server, front
from kilocard.deploy.target import Files, RenderOptions, Target
from kilocard.spec.model import ClusterSpec

#: idle connections to servers that one worker keeps
IDLE_CONNECTIONS = 256

_MAIN = """\
# An nginx of its own. Where one runs already, its conf.d/ needs conf.d/kilocard.conf alone.
worker_processes auto;
worker_rlimit_nofile 65536;

events {
  worker_connections 16384;
}

http {
  # A line for each request, with what a slow answer is asked about first.
  log_format kilocard '$remote_addr [$time_iso8601] "$request" $status $body_bytes_sent '
                      '$request_time $upstream_addr $upstream_response_time $upstream_http_x_request_id';
  access_log /dev/stdout kilocard;
  error_log /dev/stderr warn;
  include conf.d/kilocard.conf;
}
"""

_PART = """\
# Written by `kilocard render nginx`: change the cluster file and render again.
# {behind}
upstream kilocard {{
  # Shared memory: without it every worker would count connections and failures for itself.
  zone kilocard 256k;
  least_conn;
{servers}
  keepalive {idle};
  keepalive_timeout {keep_alive}s;  # shorter than the servers keep it, or a request meets a closing connection
}}

server {{
  listen {listen};
  server_name _;

  client_max_body_size {body};
  large_client_header_buffers 4 {header};
  # A prompt stays in memory and is read whole before a server is bothered with it.
  client_body_buffer_size 1m;

  location / {{
    proxy_pass http://kilocard;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;

    # Tokens go on as they come.
    proxy_buffering off;
    proxy_cache off;
    gzip off;
    tcp_nodelay on;

    # Before the first token nothing comes, for as long as the prompt and the queue take.
    proxy_connect_timeout {connect}s;
    proxy_read_timeout {silence}s;
    proxy_send_timeout {silence}s;
    send_timeout {silence}s;

    # Another server only where this one got nothing of the request (nginx itself never repeats a POST that was sent).
    proxy_next_upstream error timeout;
    proxy_next_upstream_tries 2;
    # A client that leaves ends the generation.
    proxy_ignore_client_abort off;
  }}
}}
"""


def render(spec: ClusterSpec, options: RenderOptions) -> Files:
    """nginx.conf and conf.d/kilocard.conf. Raises UsageError as `front` does."""
    what = front(spec, options)
    return {"nginx.conf": _MAIN, "conf.d/kilocard.conf": _part(what)}


def _part(what: Front) -> str:
    return _PART.format(
        behind=what.comment,
        servers="\n".join(map(_server, what.servers)),
        idle=IDLE_CONNECTIONS,
        keep_alive=what.keep_alive,
        listen=what.listen,
        body=what.body,
        header=what.header,
        connect=what.connect,
        silence=what.silence,
    )


def _server(server: Server) -> str:
    parts = [f"  server {server.at}"]
    if server.weight != 100:
        parts.append(f"weight={server.weight}")
    parts.append(f"max_fails={FAILURES} fail_timeout={REST}s")
    if server.most is not None:
        parts.append(f"max_conns={server.most}")
    line = f"{' '.join(parts)};"
    return line + "  # all its addresses, as they were when nginx was started or reloaded" if server.several else line


NGINX = Target("nginx", "nginx before the gateways, or with `--direct` before the replicas", render)
