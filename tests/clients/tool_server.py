"""A server of tools, made with the official library of the Model Context Protocol.

    tool_server.py stdio
    tool_server.py http     prints one JSON line with its address on stderr
"""

from __future__ import annotations

import json
import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("words")


@server.tool()
def shout(text: str) -> str:
    """Says a text loudly."""
    return f"{text.upper()}!"


@server.tool()
def stumble() -> str:
    """Never works."""
    raise ToolError("no luck")


def main(transport: str) -> None:
    if transport == "stdio":
        return server.run("stdio")
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    print(json.dumps({"message": "listening", "listener": "tools", "address": f"{host}:{port}"}), file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
