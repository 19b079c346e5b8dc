"""Serves a model of the form of Qwen3 with llama.cpp, until it is told to end. Needs the packages xllamacpp, gguf and numpy.

    llamacpp.py MODEL PORT [--bare] [--chat-template FILE|NAME] [--no-thinking] [--context TOKENS] [--slots COUNT] [--slots-only]

MODEL is a folder as vLLM and SGLang read it; llama.cpp reads a file of another form, which is made of it first. With `--bare`
the answer's text is passed on as the model wrote it. The chat template is in a file, or one of llama.cpp's own, such as `chatml`. With `--no-thinking` the model does not think unless a request says so. With
`--slots-only` prompts are kept in its slots and nowhere else. TOKENS are those of one slot.
"""

from __future__ import annotations

import argparse
import json
import signal
import struct
import tempfile
from pathlib import Path
from typing import Any, Iterator

import gguf
import numpy as np
import xllamacpp

CONTEXT = 2048
SLOTS = 4


def tensors(model: Path) -> Iterator[tuple[str, np.ndarray]]:
    """The weights as numbers of 32 bits: NumPy has none of the kind in which they are kept."""
    with (model / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        table = json.loads(file.read(length))
        for name, about in table.items():
            if name == "__metadata__":
                continue
            begin, end = about["data_offsets"]
            file.seek(8 + length + begin)
            bits = np.frombuffer(file.read(end - begin), dtype={"BF16": np.uint16, "F32": np.uint32}[about["dtype"]])
            if about["dtype"] == "BF16":
                bits = bits.astype(np.uint32) << 16
            yield name, bits.view(np.float32).reshape(about["shape"])


def add_tokens(writer: gguf.GGUFWriter, model: Path, config: dict[str, Any]) -> None:
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    names = [f"[PAD{at}]" for at in range(config["vocab_size"])]
    kinds = [gguf.TokenType.UNUSED] * len(names)
    for name, at in tokenizer["model"]["vocab"].items():
        names[at], kinds[at] = name, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        at = added["id"]
        names[at] = added["content"]
        kinds[at] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]])
    for key, add in (("eos_token_id", writer.add_eos_token_id), ("bos_token_id", writer.add_bos_token_id), ("pad_token_id", writer.add_pad_token_id)):
        value = config.get(key)
        if value is not None:
            add(value[0] if isinstance(value, list) else value)
    writer.add_add_bos_token(False)
    writer.add_chat_template(json.loads((model / "tokenizer_config.json").read_text())["chat_template"])


def convert(model: Path, file: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    writer = gguf.GGUFWriter(str(file), "qwen3")
    writer.add_name(model.name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokens(writer, model, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for name, values in tensors(model):
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def parameters(file: Path, model: Path, wanted: argparse.Namespace) -> xllamacpp.CommonParams:
    given = xllamacpp.CommonParams()
    given.model.path = str(file)
    given.model_alias = {model.name}
    given.port = wanted.port
    given.n_ctx = wanted.context * wanted.slots
    given.n_parallel = wanted.slots
    given.kv_unified = False
    given.cpuparams.n_threads = 1
    given.warmup = False
    given.endpoint_metrics = True
    given.use_jinja = True
    if wanted.slots_only:
        given.cache_ram_mib = 0
    if template := wanted.chat_template:
        given.chat_template = Path(template).read_text() if Path(template).is_file() else template
    if wanted.no_thinking:
        given.default_template_kwargs = {"enable_thinking": "false"}
    if wanted.bare:
        given.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
        given.force_pure_content_parser = True
    return given


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model", type=Path)
    arguments.add_argument("port", type=int)
    arguments.add_argument("--bare", action="store_true")
    arguments.add_argument("--chat-template")
    arguments.add_argument("--no-thinking", action="store_true")
    arguments.add_argument("--context", type=int, default=CONTEXT)
    arguments.add_argument("--slots", type=int, default=SLOTS)
    arguments.add_argument("--slots-only", action="store_true")
    given = arguments.parse_args()
    stops = {signal.SIGTERM, signal.SIGINT}
    # Before the server's threads are there, so that they do not take the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.gguf"
        convert(given.model, file)
        server = xllamacpp.Server(parameters(file, given.model, given))
        print(f"{server.listening_address} is ready", flush=True)
        signal.sigwait(stops)


if __name__ == "__main__":
    main()
