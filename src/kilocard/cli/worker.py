"""`python -m kilocard.cli.worker FD`: one worker of `kilocard gateway --workers`, started by its supervisor."""

from __future__ import annotations

import logging
import os
import sys

from kilocard.cli.wiring import gateway_of
from kilocard.net.loop import run
from kilocard.workers.worker import Worker


async def main(descriptor: int) -> None:
    await Worker(lambda spec, seat: gateway_of(spec, seat=seat)).run(descriptor)


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("KILOCARD_LOG", "INFO").upper(), format="worker %(process)d: %(message)s")
    run(main(int(sys.argv[1])))
