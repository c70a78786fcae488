"""A gRPC client that makes every kind of call and says what came back.

    grpc_client.py TARGET CA [AUTHORITY]

With AUTHORITY the connection goes to TARGET all the same, as a captured one
does. A proxy is taken from the environment.
"""

import queue
import sys

import grpc


def main():
    target, ca = sys.argv[1:3]
    options = []
    if len(sys.argv) > 3:
        options = [
            ("grpc.ssl_target_name_override", sys.argv[3]),
            ("grpc.default_authority", sys.argv[3]),
        ]
    credentials = grpc.ssl_channel_credentials(open(ca, "rb").read())
    with grpc.secure_channel(target, credentials, options=options) as channel:
        answer, call = channel.unary_unary("/test.Echo/Unary").with_call(b"hello", timeout=10)
        print("unary:", answer.decode(), dict(call.trailing_metadata()).get("x-trailer"))

        large = channel.unary_unary("/test.Echo/Unary")(b"x" * 1_000_000, timeout=10)
        print("large:", len(large))

        numbers = channel.unary_stream("/test.Echo/Counting")(b"5", timeout=10)
        print("counting:", " ".join(number.decode() for number in numbers))

        said = queue.Queue()
        heard = channel.stream_stream("/test.Echo/Conversing")(iter(said.get, None), timeout=10)
        for word in (b"one", b"two", b"three"):
            said.put(word)
            # Each word is answered before the next is said.
            print("conversing:", next(heard).decode())
        said.put(None)
        print("conversing:", list(heard))

        for method in ("Failing", "Forbidden"):
            try:
                channel.unary_unary(f"/test.Echo/{method}")(b"", timeout=10)
                print(f"{method}: went through")
            except grpc.RpcError as error:
                print(f"{method}:", error.code().name, error.details())


main()
