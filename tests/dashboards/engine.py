"""The scripted engine of tests/clients, as a vLLM that reports its load, with answers that fail in each way the board shows.

    engine.py sound|broken|busy    broken: it has the model of that name alone, and every answer is an error; busy: a model of
                                   that name is there, too, which refuses everything
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))

import engine as scripted  # noqa: E402

LOAD = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="text"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="text"} 4.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="text"} 0.25
"""
KIND = sys.argv[1]
answer = scripted.respond


def busy(path: str, body: dict[str, Any], headers: dict[str, str]) -> scripted.Answer:
    return scripted.whole({"error": {"message": "Too many.", "type": "rate_limit_error", "code": 429}}, 429)


def respond(method: str, path: str, headers: dict[str, str], raw: bytes) -> scripted.Answer:
    if method == "GET" and path == "/metrics":
        return scripted.Answer(200, {"content-type": "text/plain; version=0.0.4"}, LOAD)
    if method == "GET" and path == "/v1/models" and KIND == "broken":
        return scripted.whole({"object": "list", "data": [{"id": "broken", "object": "model", "owned_by": "vllm"}]})
    if method == "POST" and KIND == "broken":
        return scripted.whole({"error": {"message": "Dead.", "type": "InternalServerError", "code": 500}}, 500)
    return answer(method, path, headers, raw)


# A model that repeats itself.
scripted.chat("loop", scripted.text_steps(*["and so on, "] * 800), [])
scripted.respond = respond
if KIND == "busy":
    scripted.SCRIPTS["busy"] = busy

if __name__ == "__main__":
    scripted.main()
