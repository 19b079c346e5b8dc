"""Cached tokens of two real engines behind samewire, by affinity; called by benches/caches.sh."""

import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SAMEWIRE = sys.argv[1]
MODEL = "tests/live/tiny-qwen3"
# Two engines have room for four conversations each: more memory would hold this tiny model's caches for days.
SYSTEMS = 6
TALKS = 8
TURNS = 3


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(url, body=None):
    request = urllib.request.Request(url, data=json.dumps(body).encode() if body else None, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


def wait_for(url):
    for _ in range(600):
        try:
            return ask(url)
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"nobody answers at {url}")


def conversations():
    """Returns all turns in an order in which conversations take turns: what has been said up to each."""
    words = random.Random(3)
    text = lambda number: " ".join(words.choice(["one", "two", "red", "blue", "cat", "dog", "sun", "sea"]) for _ in range(number))
    systems = [text(500) for _ in range(SYSTEMS)]
    talks = [[{"role": "system", "content": system}] for system in systems for _ in range(TALKS)]
    for turn in range(TURNS):
        order = list(range(len(talks)))
        words.shuffle(order)
        for at in order:
            talks[at].append({"role": "user", "content": text(20)})
            yield list(talks[at])
            talks[at].append({"role": "assistant", "content": text(10)})


def measure(by, folder):
    """Returns prompt tokens, those of them that came from a cache, and the requests of each engine."""
    engines = [free_port(), free_port()]
    processes = [subprocess.Popen([sys.executable, "tests/live/llamacpp.py", MODEL, str(port), "--slots-only"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for port in engines]
    proxy, admin = free_port(), free_port()
    file = folder / f"{by}.toml"
    upstreams = "".join(f'[[upstream]]\nname = "e{n}"\nurl = "http://127.0.0.1:{port}"\nengine = "llamacpp"\n' for n, port in enumerate(engines))
    file.write_text(f'[affinity]\nby = "{by}"\n{upstreams}')
    try:
        for port in engines:
            wait_for(f"http://127.0.0.1:{port}/health")
        command = [SAMEWIRE, "serve", "--config", str(file), "--listen", f"127.0.0.1:{proxy}", "--admin-listen", f"127.0.0.1:{admin}"]
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_for(f"http://127.0.0.1:{admin}/readyz")
        model = json.loads(wait_for(f"http://127.0.0.1:{proxy}/v1/models"))["data"][0]["id"]
        prompt = cached = 0
        for messages in conversations():
            body = {"model": model, "messages": messages, "max_tokens": 2, "temperature": 0}
            usage = json.loads(ask(f"http://127.0.0.1:{proxy}/v1/chat/completions", body))["usage"]
            prompt += usage["prompt_tokens"]
            cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        lines = ask(f"http://127.0.0.1:{admin}/metrics").decode().splitlines()
        share = [sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("samewire_requests_total{") and f'upstream="e{n}"' in line) for n in range(2)]
        return prompt, cached, share
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main():
    print(f"{SYSTEMS} system prompts, {TALKS} conversations each, {TURNS} turns; two llama.cpp with room for four conversations each")
    print("affinity      prompt tokens  from a cache   part  requests of each")
    with tempfile.TemporaryDirectory() as name:
        for by in ("none", "conversation", "prefix"):
            prompt, cached, share = measure(by, pathlib.Path(name))
            print(f"{by:<12}  {prompt:>13}  {cached:>12}  {cached / prompt:>5.0%}  {share[0]:.0f} and {share[1]:.0f}", flush=True)


main()
