// Made-up data for the mock: requests, history, captures and exchanges. The same in each run, apart from the clock.

const RULES = {
  reasoning_name: 'Reasoning came under another name',
  role_content: "The first chunk's empty content was dropped from the role frame",
  finish_merged: 'Text stood in the chunk that finishes',
  usage_moved: 'Usage nobody asked for, or on another chunk than its own',
  unknown_field: 'A field the format does not name',
  tool_id: 'A tool call id was rewritten or derived',
  id: 'The completion id got its prefix, was hashed or was made',
}

export const now = () => Date.now() / 1e3

/** Numbers that look random and are the same each time. */
export function numbers(seed) {
  let state = seed
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296
    return state / 4294967296
  }
}

export const EVIL = '<script>document.title="run"</script><img src=x onerror="document.title=\'run\'">\u202eabc\u0007\u200b'
const MODELS = ['gpt-oss-120b', 'qwen3-32b', 'llama-3.3-70b', 'deepseek-v3.2']
const KEYS = ['web', 'batch', 'agents', null]
const UPSTREAMS = [['vllm-1', 'vllm'], ['sglang-1', 'sglang'], ['vllm', 'vllm']]
const BEGAN = now()

function base(at, random) {
  const [upstream, engine] = UPSTREAMS[at % UPSTREAMS.length]
  return {
    id: `req_${at.toString(16).padStart(32, '0')}`,
    number: at,
    method: 'POST',
    path: at % 7 === 3 ? '/v1/responses' : '/v1/chat/completions',
    model: MODELS[Math.floor(random() * MODELS.length)],
    key: KEYS[Math.floor(random() * KEYS.length)],
    upstream,
    engine,
    attempts: 1,
    is_captured: at % 5 === 0,
  }
}

/** Requests that run: tokens grow with the time, as those of real streams do. */
export function running(number, since = now() - BEGAN) {
  const random = numbers(7)
  return Array.from({ length: number }, (_, at) => {
    const rate = 20 + random() * 60
    const waits = at % 9 === 4
    const age = since + random() * 20
    return {
      ...base(at, random),
      began: now() - age,
      state: waits ? 'waiting' : 'streaming',
      first_token_ms: waits ? null : 40 + random() * 400,
      tokens: waits ? 0 : Math.floor(age * rate),
      tokens_per_second: waits ? null : rate,
      bytes: waits ? 0 : Math.floor(age * rate * 260),
      end: null, side: null, status: waits ? null : 200, code: null, total_ms: null,
    }
  })
}

const ENDS = [
  ['complete', null, 200, null], ['complete', null, 200, null], ['complete', null, 200, null],
  ['client_closed', 'client', 200, null], ['complete', null, 200, null],
  ['error', 'upstream', 503, 'engine_overloaded'], ['complete', null, 200, null], ['error', 'proxy', 429, 'rate_limit_exceeded'],
]

export function ended(number) {
  const random = numbers(11)
  return Array.from({ length: number }, (_, index) => {
    const at = index + 100_000
    const [end, side, status, code] = ENDS[index % ENDS.length]
    const isGood = end === 'complete'
    const total = 300 + random() * 9_000
    return {
      ...base(at, random),
      began: now() - index * 3 - total / 1e3,
      state: 'ended',
      attempts: status === 503 ? 3 : 1,
      first_token_ms: status === 200 ? 40 + random() * 300 : null,
      tokens: status === 200 ? Math.floor(random() * 900) : 0,
      tokens_per_second: status === 200 ? 20 + random() * 70 : null,
      bytes: isGood ? Math.floor(random() * 200_000) : 180,
      end, side, status, code, total_ms: total,
    }
  })
}

/** Thirty minutes, with a gap of five minutes and one lone point. */
export function history() {
  const random = numbers(3)
  const last = Math.floor(now() / 5) * 5
  const points = []
  for (let at = last - 359 * 5; at <= last; at += 5) {
    const age = (last - at) / 60
    const isGap = age > 12 && age < 17 && age !== 14.5
    const wave = 1 + 0.4 * Math.sin(at / 90)
    const quantiles = (count, middle) => ({
      count: isGap ? 0 : count,
      p50_ms: isGap ? null : middle * wave * (0.9 + random() * 0.2),
      p95_ms: isGap ? null : middle * wave * (2 + random() * 0.9),
    })
    const requests = isGap ? 0 : Math.floor(8 * wave + random() * 6)
    points.push({ at, requests, errors: random() > 0.93 && !isGap ? 1 : 0, first_token: quantiles(requests, 120), inter_token: quantiles(requests * 90, 14), tokens: requests * 95 })
  }
  return { step_seconds: 5, points }
}

export function status(state) {
  const grown = Math.floor((now() - BEGAN) * 3)
  return {
    version: '0.9.0', commit: state.commit, now: now(), uptime_seconds: 4_512 + now() - BEGAN, ready: state.why === null, why: state.why,
    base_url: 'http://127.0.0.1:8080/v1', requests_running: state.requests().running.length,
    capture: {
      is_on: state.capturing !== null, criteria: state.capturing, until: null, held: state.exchanges.size,
      bytes: 1_234_567, max_exchanges: 200, max_bytes: 67_108_864,
    },
    upstreams: state.upstreams,
    drift: state.drift.map(row => ({ ...row, count: row.count + (row.rule === 'reasoning_name' ? grown : 0) })),
  }
}

const upstreams = () => [
  { name: 'vllm-1', engine: 'vllm', version: '0.23.0', front_end: null, ready: true, why: null, circuit: 'closed', in_flight: 7, engine_running: 6, engine_waiting: 1, cache_usage: 0.42 },
  { name: 'sglang-1', engine: 'sglang', version: '0.5.12', front_end: 'sgl-router', ready: true, why: null, circuit: 'closed', in_flight: 4, engine_running: 4, engine_waiting: 0, cache_usage: 0.93 },
  { name: 'vllm', engine: 'vllm', version: null, front_end: null, ready: false, why: 'cannot connect to 10.0.0.7:8000: connection refused', circuit: 'open', in_flight: 0, engine_running: null, engine_waiting: null, cache_usage: null },
]

const drift = () => [
  ['vllm', 'reasoning_name', 48_210], ['vllm', 'role_content', 1_204], ['sglang', 'usage_moved', 912], ['sglang', 'finish_merged', 377], ['vllm', 'unknown_field', 41],
].map(([engine, rule, count]) => ({ engine, rule, count, what: RULES[rule] }))

const chunk = (delta, more = {}, own = {}) => `data: ${JSON.stringify({ id: 'chatcmpl-9668d2c2b6dc154b', object: 'chat.completion.chunk', created: 1795235546, model: 'gpt-oss-120b', choices: [{ index: 0, delta, logprobs: null, finish_reason: null, ...more }], ...own })}\n\n`

const WORDS = 'The weather in Paris is mild today with light clouds and a breeze from the west so a jacket will do'.split(' ')
const change = (rule, text, times = 1) => ({ rule, text, times })

/** Rows of a chat stream: reasoning, text with the words given, a finish; with a pause in the middle. */
export function rows(number, words = WORDS) {
  const random = numbers(5)
  const found = []
  let at = 182.4
  const add = (engine, client, changes = []) => {
    found.push({
      engine: engine === null ? null : { at_ms: at, text: engine },
      client: client.map((text, index) => ({ at_ms: at + 0.18 + index * 0.01, text })),
      changes,
    })
  }
  add(chunk({ role: 'assistant', content: '' }, {}, { prompt_token_ids: null }), [], [change('role_content', 'held back until there is content')])
  const reasoning = Math.max(1, Math.floor(number / 3))
  for (let row = 1; row < number - 2; row += 1) {
    at += 9 + random() * 12 + (row === Math.floor(number / 2) ? 2_600 : 0) + (row === reasoning ? 700 : 0)
    const word = ` ${words[row % words.length]}`
    if (row <= reasoning) {
      const out = [chunk({ reasoning_content: word, reasoning: word })]
      if (row === 1) out.unshift(chunk({ role: 'assistant' }))
      add(chunk({ reasoning: word }, { token_ids: null }), out, [change('reasoning_name', 'delta.reasoning → delta.reasoning_content, delta.reasoning'), change('null_fields', '− token_ids')])
    } else add(chunk({ content: word }, { token_ids: null }), [chunk({ content: word })], row % 40 === 0 ? [change('unknown_field', '− choices[0].token_ids')] : [])
  }
  at += 11
  add(chunk({ content: '.' }, { finish_reason: 'stop', stop_reason: null }), [chunk({ content: '.' }), chunk({}, { finish_reason: 'stop' })], [change('finish_merged', 'one frame became two')])
  add(null, [': ping\n\n'])
  at += 1
  add('data: [DONE]\n\n', ['data: [DONE]\n\n'])
  return found
}

const REQUEST = { model: 'gpt-oss-120b', stream: true, messages: [{ role: 'system', content: 'Answer briefly.' }, { role: 'user', content: 'How is the weather in Paris?' }], max_completion_tokens: 512, temperature: 0.2 }

function summaryOf(id, all, more) {
  const sum = texts => texts.reduce((bytes, text) => bytes + text.length, 0)
  return {
    id, number: 7, began: now() - 60, method: 'POST', path: '/v1/chat/completions', model: 'gpt-oss-120b', key: 'web', upstream: 'vllm-1', engine: 'vllm', attempts: 1, status: 200,
    end: 'complete', code: null, total_ms: 4_210.5, request_bytes: 412, engine_bytes: sum(all.map(row => row.engine?.text ?? '')),
    client_bytes: sum(all.flatMap(row => row.client.map(frame => frame.text))), rules: { reasoning_name: 30, role_content: 1, finish_merged: 1 }, is_cut: false, ...more,
  }
}

/** An exchange of the mock: its summary, and a function that returns the answer of `/frames`. */
export function exchange(id, all, more = {}) {
  const { frames = {}, ...summary } = more
  const head = summaryOf(id, all, summary)
  const { max_completion_tokens: tokens, ...rest } = REQUEST
  return {
    summary: head,
    frames: () => ({
      id, summary: head, request: { client: JSON.stringify(REQUEST), engine: JSON.stringify({ ...rest, max_tokens: tokens, stream_options: { include_usage: true } }) },
      attempts: [{ upstream: 'vllm-1', engine: 'vllm', status: 200, is_complete: true, file: 'upstream.sse' }], rules: RULES, is_explained: true, why_not: null, rows: all, is_cut: false, ...frames,
    }),
  }
}

const whole = { id: 'chatcmpl-1', object: 'chat.completion', created: 1795235546, model: 'qwen3-32b', choices: [{ index: 0, message: { role: 'assistant', content: 'Mild.', reasoning: 'Look.' }, finish_reason: 'stop' }] }

function exchanges() {
  const evil = rows(24, [EVIL, 'שלום', 'עולם', 'مرحبا', '👩‍💻', '漢字'])
  const error = '{"error":{"message":"the engine is overloaded","type":"server_error","code":503}}'
  return new Map([
    ['req_stream', exchange('req_stream', rows(120))],
    ['req_evil', exchange('req_evil', evil, { model: EVIL, key: EVIL })],
    ['req_whole', exchange('req_whole', [{ engine: { at_ms: 812, text: JSON.stringify(whole) }, client: [{ at_ms: 812.6, text: JSON.stringify({ ...whole, choices: [{ ...whole.choices[0], message: { role: 'assistant', content: 'Mild.', reasoning_content: 'Look.' } }] }) }], changes: [change('reasoning_name', 'message.reasoning → message.reasoning_content')] }], { model: 'qwen3-32b' })],
    ['req_failed', exchange('req_failed', [{ engine: { at_ms: 31, text: error }, client: [{ at_ms: 31.5, text: error }], changes: [] }], {
      status: 503, end: 'error', code: 'engine_overloaded', attempts: 2, rules: {},
      frames: { attempts: [{ upstream: 'vllm-1', engine: 'vllm', status: null, is_complete: false, file: null }, { upstream: 'sglang-1', engine: 'sglang', status: 503, is_complete: true, file: 'upstream.json' }] },
    })],
    ['req_relayed', exchange('req_relayed', [{ engine: { at_ms: 12, text: '{"scores":[0.1,0.9]}' }, client: [{ at_ms: 12.2, text: '{"scores":[0.1,0.9]}' }], changes: [] }], {
      path: '/v1/rerank', rules: {}, frames: { is_explained: false, why_not: 'the route is relayed byte for byte' },
    })],
  ])
}

export function captures(state) {
  return { capturing: state.capturing, used_bytes: 1_234_567, exchanges: [...state.exchanges.values()].map(one => one.summary) }
}

/** The state that the mock begins with: some traffic, three engines, capture on. */
export function usual() {
  return {
    commit: 'a1b2c3d', why: null, isGone: false, isWithoutCaptures: false, refusal: null, commands: [], asked: [],
    requests: () => ({ running: running(14), ended: [{ ...ended(1)[0], id: 'req_stream', number: 7, is_captured: true }, ...ended(60)] }),
    history, upstreams: upstreams(), drift: drift(), exchanges: exchanges(),
    capturing: { key: null, model: null, only_failures: false, seconds_left: 412 },
  }
}

/** The state of a samewire that has just started. */
export function empty(state) {
  return Object.assign(state, {
    requests: () => ({ running: [], ended: [] }), history: () => ({ step_seconds: 5, points: [] }), upstreams: [], drift: [], exchanges: new Map(), capturing: null,
  })
}
