"""Serves pproxy at the address of the first argument, without its own choice of a loop."""

import asyncio
import sys

import pproxy


async def main() -> None:
    # It lets an address in for a month once it has told its password.
    serving = await pproxy.Server(sys.argv[1]).start_server({"rserver": [], "authtime": -1})
    await serving.serve_forever()


asyncio.run(main())
