"""Gauges beside a run: pages of real servers, on the sampler's own thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from openai_stub import Stub, served

from kilocard.bench.ask import Target
from kilocard.bench.gauges import DIALECTS, Page
from kilocard.bench.gpu_watch import GpuWatch
from kilocard.bench.sampler import Sampler
from kilocard.emulator.replica import Replica
from kilocard.emulator.settings import Settings
from kilocard.net.client import fetch

VLLM = DIALECTS[0]
NO_GPUS = "no-such-program"


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.01)


def test_an_engine_at_work_is_seen_and_counters_are_there_at_the_end() -> None:
    async def story() -> None:
        async with Replica(Settings(max_num_seqs=2)) as replica:
            url = await replica.start()
            page = Page(f"{url}/metrics", VLLM)
            sampler = Sampler(Target(url), [page], time.monotonic, period_s=0.05, gpus=GpuWatch(program=NO_GPUS))
            sampler.start()
            body = b'{"model":"emulated","prompt":"hello there","max_tokens":400,"ignore_eos":true}'
            asks = [
                asyncio.create_task(fetch(f"{url}/v1/completions", method="POST", body=body, timeout=60))
                for _ in range(5)
            ]
            await until(lambda: any(sample.running == 2 and sample.waiting == 3 for sample in sampler.samples))
            await until(lambda: len(sampler.samples) >= 4)
            for ask in asks:
                ask.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
            samples = await asyncio.to_thread(sampler.stop)
            assert sampler.failures == 0
            assert all(sample.kv_usage is not None and sample.preemptions is not None for sample in samples)
            assert [sample.at_s for sample in samples] == sorted(sample.at_s for sample in samples)
            assert samples[0].gpu_memory_gib is None
            middle = samples[len(samples) // 2].at_s
            assert 0 < len(sampler.between(middle, samples[-1].at_s)) < len(samples)

    asyncio.run(story())


def test_a_page_that_goes_away_is_unknown_and_said() -> None:
    async def story() -> None:
        stub = Stub(metrics=b"# TYPE x gauge\nvllm:num_requests_running 3\n")
        async with served(stub) as url:
            page = Page(f"{url}/metrics", VLLM)
            sampler = Sampler(Target(url), [page], time.monotonic, period_s=0.02, gpus=GpuWatch(program=NO_GPUS))
            sampler.start()
            await until(lambda: any(sample.running == 3 for sample in sampler.samples))
            stub.metrics = None
            await until(lambda: sampler.failures >= 2)
            assert sampler.samples[-1].running is None
            assert sampler.trouble == f"{url}/metrics: answered 404"
            stub.metrics = b"# TYPE x gauge\nvllm:num_requests_running 4\n"
            await until(lambda: any(sample.running == 4 for sample in sampler.samples))
            await asyncio.to_thread(sampler.stop)

    asyncio.run(story())


def test_two_replicas_add_up_and_the_key_goes_to_its_own_server_only() -> None:
    async def story() -> None:
        here = Stub(key="sk-right-key-123", metrics=b"# TYPE x gauge\nvllm:num_requests_running 3\n")
        there = Stub(metrics=b"# TYPE x gauge\nvllm:num_requests_running 4\n")
        async with served(here) as url, served(there) as other:
            target = Target(url, headers=(("authorization", "Bearer sk-right-key-123"),))
            pages = [Page(f"{url}/metrics", VLLM), Page(f"{other}/metrics", VLLM)]
            sampler = Sampler(target, pages, time.monotonic, period_s=0.02, gpus=GpuWatch(program=NO_GPUS))
            sampler.start()
            await until(lambda: any(sample.running == 7 for sample in sampler.samples))
            there.metrics = None
            await until(lambda: sampler.failures)
            await asyncio.to_thread(sampler.stop)
            assert sampler.samples[-1].running is None, "half a sum is no sum"
            assert (here.keys, there.keys) == ({"Bearer sk-right-key-123"}, {""})

    asyncio.run(story())


def test_nothing_to_watch_starts_nothing() -> None:
    sampler = Sampler(Target("http://127.0.0.1:1"), [], time.monotonic, gpus=GpuWatch(program=NO_GPUS))
    sampler.start()
    assert sampler.stop() == []


def test_gpus_of_a_dcgm_exporter() -> None:
    async def story() -> None:
        page = b'DCGM_FI_DEV_FB_USED{gpu="0"} 2048\nDCGM_FI_DEV_GPU_UTIL{gpu="0"} 50\n'
        async with served(Stub(metrics=page)) as url:
            sampler = Sampler(Target("http://10.0.0.1"), [], time.monotonic, period_s=0.02, gpu_urls=[f"{url}/metrics"])
            sampler.start()
            await until(lambda: sampler.samples)
            samples = await asyncio.to_thread(sampler.stop)
            assert (samples[0].gpu_memory_gib, samples[0].gpu_busy, samples[0].running) == (2.0, 0.5, None)

    asyncio.run(story())


def test_nvidia_smi_is_one_process_that_ends_with_the_sampler(tmp_path: Path) -> None:
    """A program that prints what nvidia-smi prints: there is no GPU here."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" > {tmp_path}/arguments\n'
        'while true; do echo "0, 1024, 57"; echo "1, 38912, [N/A]"; sleep 0.05; done\n'
    )
    program.chmod(0o755)
    watch = GpuWatch(0.1, str(program))
    sampler = Sampler(Target("http://127.0.0.1:1"), [], time.monotonic, period_s=0.02, gpus=watch)
    sampler.start()
    asyncio.run(until(lambda: any(sample.gpu_memory_gib == 39.0 for sample in sampler.samples)))
    samples = sampler.stop()
    assert samples[-1].gpu_busy == 0.57
    assert watch._process is not None
    assert watch._process.returncode is not None
    wanted = "--query-gpu=index,memory.used,utilization.gpu --format=csv,noheader,nounits --loop-ms=100\n"
    assert (tmp_path / "arguments").read_text() == wanted


def test_gpus_here_are_not_those_of_a_server_elsewhere(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    program.chmod(0o755)
    sampler = Sampler(Target("http://10.0.0.1:1"), [], time.monotonic, gpus=GpuWatch(0.1, str(program)))
    sampler.start()
    assert sampler.stop() == []
    assert not (tmp_path / "was-run").exists()
