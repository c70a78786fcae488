"""A WebSocket client that says what came back.

    websocket_client.py URL PROXY CA
"""

import asyncio
import ssl
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus


async def main():
    url, proxy, ca = sys.argv[1:4]
    context = ssl.create_default_context(cafile=ca)
    try:
        async with connect(url, ssl=context, proxy=proxy, max_size=None) as websocket:
            for message in ("hello", "x" * 300_000, b"\0\1\2"):
                await websocket.send(message)
                assert await websocket.recv() == message
            await (await websocket.ping())
            extensions = websocket.response.headers.get("Sec-WebSocket-Extensions")
            print("echoed, pinged,", extensions)
        print("closed", websocket.close_code)
    except InvalidStatus as refused:
        print("refused", refused.response.status_code, refused.response.body.decode())


asyncio.run(main())
