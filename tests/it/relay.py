"""relay.py PORT TO FILE: a relay on loopback from PORT to the port TO. The bytes of
both directions are appended to FILE."""

import asyncio
import sys

port, to, log = int(sys.argv[1]), int(sys.argv[2]), open(sys.argv[3], "ab", 0)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            log.write(data)
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", to)
    except OSError:
        writer.close()
        return
    await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))


async def main() -> None:
    async with await asyncio.start_server(both, "127.0.0.1", port) as server:
        await server.serve_forever()


asyncio.run(main())
