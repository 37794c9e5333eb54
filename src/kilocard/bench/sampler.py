"""The engine's own gauges, and the GPUs', once a second beside the run.

On a thread: it waits for sockets without holding the interpreter, and holds it for a fraction of a millisecond a page.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from kilocard.bench.ask import Target
from kilocard.bench.gauges import Page, together
from kilocard.bench.gpu_readings import NOTHING, GpuReading, all_gpus, parse_dcgm
from kilocard.bench.gpu_watch import GpuWatch, is_local
from kilocard.bench.point import EngineSample
from kilocard.core.load import LoadSample
from kilocard.metrics.exposition_error import NotExposition
from kilocard.net import target as urls

#: seconds for one page: longer, and the sample would be of another moment
_TIMEOUT = 2.0
_MOST_BYTES = 8 * 1024 * 1024


class Sampler:
    """start(), then stop() or `samples` at any time. `clock` gives the run's seconds, as in the records."""

    def __init__(
        self,
        target: Target,
        pages: Sequence[Page],
        clock: Callable[[], float],
        *,
        period_s: float = 1.0,
        gpu_urls: Iterable[str] = (),
        gpus: GpuWatch | None = None,
    ) -> None:
        self._clock = clock
        self._period = period_s
        self._pages = [(page, _Fetcher(page.url, target)) for page in pages]
        self._gpu_pages = [_Fetcher(url, target) for url in gpu_urls]
        watch = gpus or GpuWatch(period_s)
        self._gpus = watch if is_local(target.url) and not self._gpu_pages else None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._samples: list[EngineSample] = []
        #: what the last page that could not be read said, with how many there were
        self.failures = 0
        self.trouble: str | None = None

    @property
    def samples(self) -> list[EngineSample]:
        with self._lock:
            return list(self._samples)

    def between(self, start_s: float, end_s: float) -> list[EngineSample]:
        """Those of one point."""
        return [sample for sample in self.samples if start_s <= sample.at_s <= end_s]

    def start(self) -> None:
        """Nothing is started where there is nothing to watch: `samples` stays empty."""
        has_gpus = self._gpus is not None and self._gpus.start()
        if self._pages or self._gpu_pages or has_gpus:
            self._thread = threading.Thread(target=self._run, name="engine gauges", daemon=True)
            self._thread.start()

    def stop(self) -> list[EngineSample]:
        """Take a last sample, so that counters are seen at the end as well, and end the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_TIMEOUT * (1 + len(self._pages) + len(self._gpu_pages)))
        if self._gpus is not None:
            self._gpus.stop()
        return self.samples

    def _run(self) -> None:
        due = self._clock()
        while True:
            last = self._stopping.wait(max(0.0, due - self._clock()))
            sample = self._look()
            with self._lock:
                self._samples.append(sample)
            if last:
                break
            # A page that came late moves the next one; samples are never made up for time that has passed.
            due = max(due + self._period, self._clock())
        for _, fetcher in self._pages:
            fetcher.close()
        for fetcher in self._gpu_pages:
            fetcher.close()

    def _look(self) -> EngineSample:
        readings = [self._read(page, fetcher) for page, fetcher in self._pages]
        sample = together(readings, self._clock())
        gpus = all_gpus([self._read_gpus(fetcher) for fetcher in self._gpu_pages])
        if self._gpus is not None:
            gpus = self._gpus.latest()
        return replace(sample, gpu_memory_gib=gpus.memory_gib, gpu_busy=gpus.busy)

    def _read(self, page: Page, fetcher: _Fetcher) -> LoadSample:
        try:
            return page.read(fetcher.fetch(), self._clock())
        except (OSError, http.client.HTTPException, NotExposition) as error:
            self._note(page.url, error)
            return LoadSample(self._clock())

    def _read_gpus(self, fetcher: _Fetcher) -> GpuReading:
        try:
            return parse_dcgm(fetcher.fetch())
        except (OSError, http.client.HTTPException, NotExposition) as error:
            self._note(fetcher.url, error)
            return NOTHING

    def _note(self, url: str, error: Exception) -> None:
        self.failures += 1
        self.trouble = f"{url}: {error or type(error).__name__}"


class _Fetcher:
    """One page on one connection that is kept. Blocking: for the sampler's thread only."""

    def __init__(self, url: str, target: Target) -> None:
        self.url = url
        self._place = urls.parse_target(url)
        self._tls = target.tls
        #: the key goes only to the server that it is for
        self._headers = dict(target.headers) if url.startswith(target.url + "/") else {}
        self._connection: http.client.HTTPConnection | None = None

    def fetch(self) -> bytes:
        """Raises OSError or HTTPException."""
        reused = self._connection is not None
        try:
            return self._once()
        except (OSError, http.client.HTTPException):
            self.close()
            if not reused:
                raise
            # A server may close a connection that was idle for a second.
            return self._once()

    def close(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None

    def _once(self) -> bytes:
        connection = self._connection or self._connect()
        self._connection = connection
        deadline = time.monotonic() + _TIMEOUT
        connection.request("GET", self._place.path, headers=self._headers)
        response = connection.getresponse()
        body = response.read(_MOST_BYTES)
        if not response.isclosed() or time.monotonic() > deadline:
            self.close()  # there was more, or it trickled: the next one starts anew
        if response.status != 200:
            raise OSError(f"answered {response.status}")
        return body

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._place.host, self._place.port
        if self._place.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
