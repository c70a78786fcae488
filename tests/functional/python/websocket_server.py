"""A WebSocket server that sends every message back.

    websocket_server.py CERTIFICATE KEY

Prints its port, and serves until its standard input ends.
"""

import asyncio
import ssl
import sys

from websockets.asyncio.server import serve


async def echo(websocket):
    async for message in websocket:
        await websocket.send(message)


async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    async with serve(echo, "127.0.0.1", 0, ssl=context, max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
