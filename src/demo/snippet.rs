//! What a person can copy to try the demo.

/// A command that asks for a recorded answer.
pub fn curl(url: &str) -> String {
    format!(
        r#"curl -N {url}/chat/completions \
  -H 'content-type: application/json' \
  -d '{{"model": "vllm/reasoning", "stream": true,
       "messages": [{{"role": "user", "content": "How much is two and two?"}}]}}'"#
    )
}

/// A program that asks for the answers of both engines.
pub fn python(url: &str) -> String {
    format!(
        r#"# pip install openai
from openai import OpenAI
client = OpenAI(base_url="{url}", api_key="none")
messages = [{{"role": "user", "content": "How much is two and two?"}}]
for engine in ("vllm", "sglang"):
    for chunk in client.chat.completions.create(
            model=f"{{engine}}/reasoning", messages=messages, stream=True):
        delta = chunk.choices[0].delta
        text = getattr(delta, "reasoning_content", None) or delta.content
        print(text or "", end="", flush=True)
    print()"#
    )
}
