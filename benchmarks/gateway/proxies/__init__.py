"""One file per proxy: how to configure, start and recognise it. `ALL` is the list the command line picks from."""

from __future__ import annotations

from benchmarks.gateway.proxies.base import Proxy
from benchmarks.gateway.proxies.direct import Direct
from benchmarks.gateway.proxies.envoy import Envoy
from benchmarks.gateway.proxies.haproxy import HAProxy
from benchmarks.gateway.proxies.kilocard import Compiled, Kilocard
from benchmarks.gateway.proxies.litellm import LiteLLM
from benchmarks.gateway.proxies.nginx import Nginx
from benchmarks.gateway.proxies.relay import Relay
from benchmarks.gateway.proxies.vllm_router import VllmRouter, VllmRouterPowerOfTwo

ALL: dict[str, type[Proxy]] = {
    proxy.name: proxy
    for proxy in (Direct, Nginx, Kilocard, Compiled, VllmRouter, VllmRouterPowerOfTwo, HAProxy, Envoy, LiteLLM, Relay)
}
