"""pproxy at the address of the first argument: its own program asks for a loop that is gone."""

import asyncio
import sys

import pproxy


async def main() -> None:
    # It lets an address in for a month once it has told its password.
    serving = await pproxy.Server(sys.argv[1]).start_server({"rserver": [], "authtime": -1})
    await serving.serve_forever()


asyncio.run(main())
