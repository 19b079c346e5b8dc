//! Snippets that a user can copy to try the demo: curl and Python.

/// Returns a curl command that requests a recorded answer as a stream.
pub fn curl(url: &str) -> String {
    format!(
        r#"curl -N {url}/chat/completions \
  -H 'content-type: application/json' \
  -d '{{"model": "vllm/reasoning", "stream": true,
       "messages": [{{"role": "user", "content": "How much is two and two?"}}]}}'"#
    )
}

/// Returns a Python program that prints the answers of both engines with the OpenAI client.
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
