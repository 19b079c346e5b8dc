"""Checks of samewire behind Envoy; called by tests/envoy.sh."""

import argparse
import asyncio
import collections
import json
import pathlib
import random
import ssl
import tempfile
import time

import httpx
from engine import Engine
from machines import Database, Envoy, Replica, free_port, silent, until

# Streams at once under load, and the tokens of one.
CLIENTS = 30
TOKENS = (20, 200)
PACE = 0.01


class Client:
    """A client of Envoy, by HTTP/2 over TLS."""

    def __init__(self, port, certificate):
        context = ssl.create_default_context(cafile=certificate)
        self.http = httpx.AsyncClient(
            base_url=f"https://localhost:{port}/v1", http2=True, verify=context, timeout=60, limits=httpx.Limits(max_connections=200)
        )

    async def whole(self, name, session, tokens=3):
        answer = await self.http.post("/chat/completions", json=chat(name, tokens, 0, False), headers={"x-session-id": session})
        assert answer.status_code == 200, answer.text
        assert answer.http_version == "HTTP/2"
        return answer.json()["choices"][0]["message"]["content"]

    async def stream(self, name, session, tokens, pace, on_token=lambda n: None):
        """Returns the outcome of a stream: `whole`, `cut`, or `refused` before its first token. Fails if a token is missing, comes
        twice, or if a broken answer looks like a finished one."""
        seen, done = 0, False
        try:
            request = self.http.stream("POST", "/chat/completions", json=chat(name, tokens, pace, True), headers={"x-session-id": session})
            async with request as answer:
                if answer.status_code != 200:
                    return "refused"
                async for line in answer.aiter_lines():
                    if line == "data: [DONE]":
                        done = True
                    elif line.startswith("data: "):
                        event = json.loads(line.removeprefix("data: "))
                        if "error" in event:
                            assert not done
                            return "cut"
                        for choice in event["choices"]:
                            text = choice["delta"].get("content") or ""
                            if text:
                                assert text == f"{seen} ", f"{name}: {text} in place of {seen}"
                                seen += 1
                                on_token(seen)
        except httpx.HTTPError:
            assert not done
            return "cut" if seen else "refused"
        if not done:
            return "cut"
        assert seen == tokens, f"{name}: {seen} of {tokens}"
        return "whole"

    async def respond(self, session, **body):
        answer = await self.http.post("/responses", json={"model": "m", **body}, headers={"x-session-id": session})
        return answer


def chat(name, tokens, pace, stream):
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": f"{name} {tokens} {pace}"}]}


async def sessions_by_replica(client, replicas, envoy):
    """Returns a session for each replica: requests of one session all go to the same."""
    found, moved, hosts = {}, 0, {replica.host for replica in replicas}
    for n in range(64):
        before = [replica.requests() for replica in replicas]
        for turn in range(5):
            await client.whole(f"where-{n}-{turn}", f"session-{n}")
        gained = [replica.requests() - count for replica, count in zip(replicas, before)]
        if sorted(gained) != [0, 0, 5]:
            # Where a machine is so busy that a replica misses its health checks, sessions move for a moment.
            moved += 1
            assert moved < 3, f"session-{n} is spread: {gained}"
            await until("Envoy knows all replicas", lambda: envoy.healthy() == hosts)
            continue
        found.setdefault(gained.index(5), f"session-{n}")
        if len(found) == len(replicas):
            return found
    raise SystemExit(f"all sessions went to {list(found)}")


async def stream_on(place, client, replicas, envoy, sessions, name, tokens, pace):
    """Starts a stream on a replica; returns its name and its task."""
    for turn in range(3):
        started, used = asyncio.Event(), f"{name}-{turn}"
        running = asyncio.create_task(client.stream(used, sessions[place], tokens, pace, lambda n: started.set()))
        await started.wait()
        if replicas[place].running() == 1:
            return used, running
        # Where a machine is so busy that a replica misses its health checks, or that Envoy's threads learn late which replicas
        # there are, sessions move.
        assert await running == "whole"
        await until("Envoy knows all replicas", lambda: envoy.healthy() == {replica.host for replica in replicas})
        sessions.update(await sessions_by_replica(client, replicas, envoy))
    raise SystemExit(f"{name}: the stream is never on the replica of its session")


async def check_drain(client, replicas, envoy, sessions):
    _, running = await stream_on(0, client, replicas, envoy, sessions, "drained", 100, 0.1)
    drain = asyncio.create_task(asyncio.to_thread(replicas[0].ask, "POST", "/drain"))
    await until("the drained replica has left", lambda: replicas[0].host not in envoy.healthy())
    before = replicas[0].requests()
    for turn in range(5):
        await client.whole(f"elsewhere-{turn}", sessions[0])
    assert await running == "whole", "a running answer ends"
    await drain
    assert replicas[0].requests() == before + 1, "only the running answer was the drained replica's"
    await asyncio.to_thread(replicas[0].ask, "POST", "/drain/undo")
    await until("it is back", lambda: replicas[0].host in envoy.healthy())
    print("a replica that drains leaves, and its stream ends whole")


async def check_kill(client, replicas, envoy, sessions, engine, binary):
    name, running = await stream_on(1, client, replicas, envoy, sessions, "killed", 200, 0.05)
    replicas[1].kill()
    assert await running == "cut", "a broken answer does not look like a finished one"
    assert engine.asked[name] == 1, "a request is not sent again"
    await until("the killed replica has left", lambda: replicas[1].host not in envoy.healthy())
    for turn in range(5):
        await client.whole(f"after-{turn}", sessions[1])
    replicas[1].start(binary)
    await replicas[1].wait_until_ready()
    await until("it is back", lambda: replicas[1].host in envoy.healthy())
    print("a replica that is killed leaves; its stream is cut, and no request is sent twice")


async def check_responses(client, sessions):
    """A stored response, and one made in the background, go on at any replica."""
    stored = await client.respond(sessions[0], input="first", store=True)
    assert stored.status_code == 200, stored.text
    for session in sessions.values():
        more = await client.respond(session, input="second", previous_response_id=stored.json()["id"])
        assert more.status_code == 200, more.text
    made = await client.respond(sessions[0], input="behind 60 0.05", background=True, stream=False, store=True)
    assert made.status_code == 200, made.text
    name = made.json()["id"]
    for session in sessions.values():
        read = await client.http.get(f"/responses/{name}", headers={"x-session-id": session})
        assert read.status_code == 200, read.text
    deadline = time.monotonic() + 30
    while (await client.http.get(f"/responses/{name}", headers={"x-session-id": sessions[1]})).json()["status"] != "completed":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    texts = set()
    for session in sessions.values():
        events = []
        async with client.http.stream("GET", f"/responses/{name}?stream=true&starting_after=3", headers={"x-session-id": session}) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    events.append(json.loads(line.removeprefix("data: ")))
        assert [event["sequence_number"] for event in events] == list(range(4, 4 + len(events))), "no event is missing or doubled"
        assert events[-1]["type"] == "response.completed"
        texts.add(events[-1]["response"]["output"][-1]["content"][0]["text"])
    assert texts == {"".join(f"{n} " for n in range(60))}, texts
    print("a stored response and a background stream go on at every replica")


async def load(client, engine, stop, outcomes, stored):
    """One client after another, until `stop` is set."""
    n = 0
    while not stop.is_set():
        n += 1
        name = f"load-{id(asyncio.current_task())}-{n}"
        if random.random() < 0.2:
            answer = None
            try:
                answer = await client.respond(name, input=f"{name} 5 0.001", store=True)
            except httpx.HTTPError:
                pass
            good = answer is not None and answer.status_code == 200
            outcomes["stored" if good else "not stored"] += 1
            if good:
                stored.append(answer.json()["id"])
        else:
            outcomes[await client.stream(name, name, random.randint(*TOKENS), PACE)] += 1
        assert engine.asked[name] <= 1, f"{name} was sent {engine.asked[name]} times"


async def check_load(client, replicas, envoy, database, engine, binary, seconds):
    """All that happens to such a set-up, under load."""
    stop, outcomes, stored = asyncio.Event(), collections.Counter(), []
    clients = [asyncio.create_task(load(client, engine, stop, outcomes, stored)) for _ in range(CLIENTS)]

    async def pause():
        for _ in range(int(seconds * 10)):
            for one in clients:
                if one.done():
                    one.result()
            await asyncio.sleep(0.1)

    async def back(replica):
        await replica.wait_until_ready()
        await until("it is back", lambda: replica.host in envoy.healthy())

    await pause()
    calm = dict(outcomes)
    assert set(calm) <= {"whole", "stored"}, f"without trouble: {calm}"
    print(f"load, without trouble: {calm}")
    replicas[0].kill()
    replicas[0].start(binary)
    await back(replicas[0])
    await pause()
    # An upgrade: the release before drains and ends, and this one takes its place.
    broken = ("cut", "refused", "not stored")
    steady = sum(outcomes[kind] for kind in broken)
    await asyncio.to_thread(replicas[2].stop)
    replicas[2].start(binary)
    await back(replicas[2])
    await pause()
    assert sum(outcomes[kind] for kind in broken) == steady, f"an upgrade costs nobody anything: {dict(outcomes)}"
    streams = outcomes["cut"] + outcomes["refused"]
    await asyncio.to_thread(database.restart)
    await pause()
    await asyncio.to_thread(database.wait_for_standby)
    await pause()
    await asyncio.to_thread(database.fail_over)
    await pause()
    stop.set()
    await asyncio.gather(*clients)
    # Each response that was confirmed is there, whichever database and replica has it now.
    probe = await client.respond("probe", input="probe", store=True)
    assert probe.status_code == 200, probe.text
    lost = [name for name in stored if (await client.http.get(f"/responses/{name}")).status_code != 200]
    assert not lost, f"{len(lost)} of {len(stored)} responses are lost"
    assert outcomes["cut"] + outcomes["refused"] == streams, f"a database that is away breaks no stream: {dict(outcomes)}"
    print(f"load, with a replica killed and one upgraded, the database restarted and failed over: {dict(outcomes)}")
    print(f"all {len(stored)} confirmed responses are there, no token was lost, no request was sent twice")


async def main():
    parser = argparse.ArgumentParser()
    for name in ("envoy", "samewire", "before"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="samewire-envoy-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        (folder / "database").mkdir()
        engine, database = Engine(), Database(folder / "database")
        await engine.start()
        ports = (free_port(), free_port())
        replicas = [Replica(number, ports, engine.port, database.address, folder) for number in (2, 3, 4)]
        envoy = Envoy(arguments.envoy, replicas, folder)
        try:
            database.start()
            for replica in replicas[:2]:
                replica.start(arguments.samewire)
            replicas[2].start(arguments.before)
            for replica in replicas:
                await replica.wait_until_ready()
            envoy.start()
            hosts = {replica.host for replica in replicas}
            await until("Envoy knows all replicas", lambda: silent(envoy.healthy) == hosts)
            client = Client(envoy.port, f"{folder}/tls.crt")
            assert await client.stream("first", "a", 50, 0.01) == "whole"
            sessions = await sessions_by_replica(client, replicas, envoy)
            print("TLS, HTTP/2, and sessions that stay at their replica")
            await check_responses(client, sessions)
            await check_drain(client, replicas, envoy, sessions)
            await check_kill(client, replicas, envoy, sessions, engine, arguments.samewire)
            await check_load(client, replicas, envoy, database, engine, arguments.samewire, arguments.seconds / 6)
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                lines = [line for line in log.read_text(errors="replace").splitlines() if '"INFO"' not in line]
                print(f"== {log.name}", *lines[-15:], sep="\n")
            raise
        finally:
            for process in [envoy.process, *(replica.process for replica in replicas)]:
                if process and process.poll() is None:
                    process.kill()
                    process.wait()
            database.stop()


asyncio.run(main())
