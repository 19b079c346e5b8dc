"""An engine that sends as many tokens as requested, and counts its clients.

The last message of a chat request has the form `ID TOKENS PACE`: the answer has the texts `0 `, `1 ` … up to TOKENS, with PACE
seconds between two. Anything else is answered with one token.
"""

import asyncio
import collections
import json


class Engine:
    """Server of one engine, with the number of requests by id."""

    def __init__(self):
        self.asked = collections.Counter()
        self.port = 0

    async def start(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                lengths = [line.split(":")[1] for line in lines if line.lower().startswith("content-length:")]
                body = await reader.readexactly(int(lengths[0])) if lengths else b""
                await self.answer(writer, lines[0].split(" ")[1], body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def answer(self, writer, path, body):
        if path == "/v1/models":
            return write_json(writer, {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "vllm"}]})
        if not path.endswith("/chat/completions"):
            return write_json(writer, {})
        request = json.loads(body)
        name, tokens, pace = plan(request)
        self.asked[name] += 1
        if not request.get("stream"):
            text = "".join(f"{n} " for n in range(tokens))
            await asyncio.sleep(tokens * pace)
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
            return write_json(writer, {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage})
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for n in range(tokens):
            await event(writer, {"content": f"{n} "}, None)
            await asyncio.sleep(pace)
        await event(writer, {}, "stop")
        chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def plan(request):
    content = request["messages"][-1]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    try:
        name, tokens, pace = text.split()
        return name, int(tokens), float(pace)
    except ValueError:
        return text, 1, 0.0


def write_json(writer, value):
    body = json.dumps(value).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


def chunk(writer, data):
    writer.write(b"%x\r\n" % len(data) + data + b"\r\n")


async def event(writer, delta, finish):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    chunk(writer, b"data: " + json.dumps(value).encode() + b"\n\n")
    await writer.drain()
