#!/bin/sh
# Written by `kilocard render ray`. Change the cluster file and render again.
#
# A worker node, on each further machine of the kind '1-gpu'; 1 machine (the head counts)
# hold the most replicas of: old-vllm.
# HEAD is the head's address: HEAD=10.0.0.1 sh worker-1-gpu.sh
set -eu
NODE_IP=${NODE_IP:-$(hostname -I | cut -d" " -f1)}
export VLLM_HOST_IP="$NODE_IP"
export NCCL_SOCKET_IFNAME='^lo,docker,veth'
GLOO_SOCKET_IFNAME=$(ip -4 -o addr show | awk -v ip="$NODE_IP/" 'index($4, ip) == 1 {print $2; exit}')
export GLOO_SOCKET_IFNAME
export RAY_USAGE_STATS_ENABLED=0
exec ray start --address="${HEAD:?set HEAD to the head's address}:6379" \
  --node-ip-address="$NODE_IP" \
  --num-gpus="${NUM_GPUS:-1}" \
  ${NUM_CPUS:+--num-cpus="$NUM_CPUS"} \
  --object-store-memory=1073741824 \
  --block
