"""nginx as a plain balancer: what the others are measured against."""

from __future__ import annotations

import shutil

from benchmarks.gateway.proxies.base import Proxy, Unavailable, output

_CONFIG = """
daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 65536;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections {connections}; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_max_body_size 32m;
  client_body_buffer_size 64k;
  keepalive_requests 1000000000;
  upstream replicas {{
    least_conn;
    {servers}
    keepalive 512;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""


class Nginx(Proxy):
    name = "nginx"
    #: on both sides together
    connections = 8192

    def program(self) -> str:
        for place in ("nginx", "/usr/sbin/nginx"):
            if found := shutil.which(place):
                return found
        raise Unavailable("apt-get install nginx")

    def prepare(self) -> None:
        self.program()

    def argv(self) -> list[str]:
        servers = " ".join(f"server 127.0.0.1:{p};" for p in self.upstreams)
        config = self.write(
            "nginx.conf",
            _CONFIG.format(folder=self.folder, port=self.port, servers=servers, connections=self.connections),
        )
        # the folder's own root: nginx opens its compiled-in log before it reads the configuration
        return [self.program(), "-p", str(self.folder), "-c", str(config), "-e", str(self.folder / "error.log")]

    def version(self) -> str:
        return output(self.program(), "-v").removeprefix("nginx version: ")
