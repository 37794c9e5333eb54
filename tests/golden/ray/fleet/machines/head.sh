#!/bin/sh
# Written by `kilocard render ray`. Change the cluster file and render again.
#
# The head of the Ray cluster, on one machine. It runs replicas as well: NUM_CPUS=0 NUM_GPUS=0 leaves it free
# of them. Ray's ports have no password: keep them inside your network.
set -eu
NODE_IP=${NODE_IP:-$(hostname -I | cut -d" " -f1)}
export VLLM_HOST_IP="$NODE_IP"
export NCCL_SOCKET_IFNAME='^lo,docker,veth'
GLOO_SOCKET_IFNAME=$(ip -4 -o addr show | awk -v ip="$NODE_IP/" 'index($4, ip) == 1 {print $2; exit}')
export GLOO_SOCKET_IFNAME
export RAY_USAGE_STATS_ENABLED=0
exec ray start --head \
  --node-ip-address="$NODE_IP" \
  --port=6379 \
  --num-gpus="${NUM_GPUS:-8}" \
  ${NUM_CPUS:+--num-cpus="$NUM_CPUS"} \
  --object-store-memory=1073741824 --include-dashboard=false \
  --block
