"""A gRPC server with four kinds of call, without generated code.

    grpc_server.py CERTIFICATE KEY

Prints its port, and serves until its standard input ends.
"""

import sys
from concurrent import futures

import grpc


def unary(request, context):
    context.set_trailing_metadata((("x-trailer", "kept"),))
    return b"unary " + request


def counting(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def conversing(requests, context):
    for request in requests:
        yield b"heard " + request


def failing(request, context):
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "not today: \u00fc")


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Counting": grpc.unary_stream_rpc_method_handler(counting),
    "Conversing": grpc.stream_stream_rpc_method_handler(conversing),
    "Failing": grpc.unary_unary_rpc_method_handler(failing),
    "Forbidden": grpc.unary_unary_rpc_method_handler(unary),
}


def main():
    certificate, key = (open(name, "rb").read() for name in sys.argv[1:3])
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", METHODS),))
    credentials = grpc.ssl_server_credentials([(key, certificate)])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None)


main()
